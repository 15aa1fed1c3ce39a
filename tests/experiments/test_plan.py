"""What the recorded facts rule out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from neuraldbg import NeuralDbg
from neuraldbg.experiments.interventions import interventions_for
from neuraldbg.experiments.plan import ruled_out
from neuraldbg.store.reader import load_record


@pytest.mark.parametrize(
    ("rate", "tried"),
    [(1e-2, {"lr_x10", "lr_x100"}), (1e-7, {"lr_x10", "lr_x100", "lr_x1000", "lr_x10000"})],
)
def test_how_far_a_rate_is_raised_depends_on_the_updates(
    rate: float, tried: set[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with NeuralDbg(model, optimizer, out=tmp_path / "run.ndbg"):
        for _ in range(30):
            optimizer.zero_grad()
            functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    record = load_record(tmp_path / "run.ndbg")
    offered = {i.name for i in interventions_for("lr_too_low") if not ruled_out(i.name, record)}
    assert offered == tried
