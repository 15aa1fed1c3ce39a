"""`diagnosis.verify(train)`: experiments in the user's own process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from neuraldbg import NeuralDbg
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.errors import UsageError


def train(rounds: list[int] | None = None, out: Path | None = None) -> Diagnosis | None:
    """Gradients are never zeroed; watched where a run file is asked for."""
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [1.5]])
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    dbg = None if out is None else NeuralDbg(model, optimizer, out=out).attach()
    for step in range(120):
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if rounds is not None:
            rounds.append(step)
    if dbg is None:
        return None
    dbg.close()
    return dbg.diagnosis()


def test_a_training_function_is_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = train(out=tmp_path / "run.ndbg")
    assert found is not None
    rounds: list[int] = []
    tested = found.verify(lambda: train(rounds), budget=60, seeds=1)
    results = {h.cause: h.experiment for h in tested.hypotheses if h.experiment}
    assert results["missing_zero_grad"]["result"] == "confirmed"
    assert tested.hypotheses[0].cause == "missing_zero_grad"
    assert tested.hypotheses[0].confidence >= found.hypotheses[0].confidence
    assert rounds.count(0) >= 2  # unchanged, and with the change
    assert "running it unchanged" in capsys.readouterr().out


def test_what_cannot_be_tested_is_said(tmp_path: Path) -> None:
    found = train(out=tmp_path / "run.ndbg")
    assert found is not None
    with pytest.raises(UsageError, match="pass a function without arguments"):
        found.verify(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not made from a run file"):
        replace(found, source=None).verify(train)
