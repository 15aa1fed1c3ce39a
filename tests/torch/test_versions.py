"""A torch that nobody has tested: one warning, a gap, and training as it would have been."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from neuraldbg.errors import ObservationWarning
from neuraldbg.torch import versions
from neuraldbg.torch.monitor import NeuralDbg


def train() -> NeuralDbg:
    model = nn.Linear(4, 2)
    with NeuralDbg(model) as dbg:
        model(torch.ones(2, 4)).sum().backward()
    return dbg


def test_it_warns_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    monkeypatch.setattr(versions, "_warned", set())
    with pytest.warns(ObservationWarning, match=r"torch 2\.99\.0\+cpu.*tested with 2\.13.*goes on"):
        first = train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = train()
    for dbg in (first, second):
        assert [gap.what for gap in dbg.diagnosis().gaps] == ["the version of torch"]
        assert dbg.diagnosis().facts.run.notes["backwards"] == 1


def test_where_warnings_are_errors_it_goes_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "3.0")
    monkeypatch.setattr(versions, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train().gaps


def test_a_tested_version_is_not_mentioned() -> None:
    assert train().gaps == []
