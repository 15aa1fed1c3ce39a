"""What works with the installed torch."""

from __future__ import annotations

from typing import Any

import pytest

from neuraldbg.torch import doctor
from neuraldbg.torch.taps import ModuleTap


@pytest.mark.compile
def test_everything_works_here(fresh_dynamo: Any) -> None:
    names = ("eager taps", "compiled taps", "late attach", "code generation")
    assert doctor.probe() == dict.fromkeys(names, True)


def test_what_does_not_work_is_told(monkeypatch: pytest.MonkeyPatch, fresh_dynamo: Any) -> None:
    monkeypatch.setattr(ModuleTap, "__call__", lambda *_: None)
    outcomes = set(doctor.probe().values())
    assert outcomes == {"RuntimeError: act_rms of the first layer was not seen in each of 3 steps"}
