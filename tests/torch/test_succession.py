"""Optimizers that are made anew for the same parameters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.torch.monitor import NeuralDbg
from neuraldbg.torch.succession import Lines

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    """An optimizer of a model."""
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_the_same_parameters_class_and_rate_make_an_heir() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    first, critic = sgd(model), sgd(other)
    lines = Lines()
    lines.begin(first)
    lines.begin(critic)
    assert lines.heir(sgd(model)) == 0
    assert lines.heir(sgd(other)) == 1
    assert lines.heir(sgd(model, 0.25)) == 0  # a schedule by hand
    assert lines.renewed == 3


def test_another_training_begins_a_line() -> None:
    model = nn.Linear(2, 2)
    first = sgd(model)
    lines = Lines()
    lines.begin(first)
    assert lines.heir(sgd(nn.Linear(2, 2))) is None
    assert lines.heir(torch.optim.SGD([model.weight], lr=0.1)) is None
    assert lines.heir(torch.optim.Adam(model.parameters(), lr=0.1)) is None
    assert lines.heir(sgd(model, 0.01)) is None  # fine-tuning
    assert lines.heir(first) is None  # no heir of its own
    assert lines.renewed == 0


def test_an_optimizer_of_every_step_is_one(mlp: nn.Module, watch: Watch, read: Read) -> None:
    with watch(mlp) as dbg:
        for _ in range(30):
            optimizer = torch.optim.Adam(mlp.parameters(), lr=1e-3)
            loss = mlp(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    record = read(dbg)
    assert [(o.kind, o.steps) for o in record.facts.optimizers] == [("Adam", 30)]
    assert len(record.series(Kind.LOSS, "loss", m.L_VALUE)) == 30
    assert record.facts.run.notes[m.N_RENEWED] == 29
    kinds = (Kind.LOSS, Kind.OPTIMIZER)
    assert not [c for c in record.channels if c.kind in kinds and c.name.startswith(("loss.", "1"))]


@pytest.mark.parametrize("before", [True, False])
def test_what_is_left_of_gradients_is_seen_by_a_new_optimizer(
    mlp: nn.Module, watch: Watch, read: Read, *, before: bool
) -> None:
    with watch(mlp) as dbg:
        optimizer = sgd(mlp, 1e-3)
        for _ in range(6):
            optimizer = sgd(mlp, 1e-3) if before else optimizer
            mlp(torch.randn(8, 4)).square().mean().backward()
            optimizer = optimizer if before else sgd(mlp, 1e-3)
            optimizer.step()
    left = read(dbg).series(Kind.OPTIMIZER, "0", m.O_CARRIED).values
    assert len(left) >= 4
    assert all(left > 0)
