"""Steps that are let pass are counted, harm nothing, and end when something new comes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.torch import schedule
from neuraldbg.torch.monitor import NeuralDbg

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]
Train = Callable[..., list[float]]
Losses = Callable[..., list[float]]

STEPS = 200


@pytest.fixture(autouse=True)
def _poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left for following steps, nor for looks."""
    monkeypatch.setattr(schedule, "FOLLOWING_ALLOWANCE", 0.0)
    monkeypatch.setattr(schedule, "ALLOWANCE", 0.0)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def test_every_step_is_counted_and_some_are_followed(
    mlp: nn.Module, watch: Watch, read: Read, train: Train, losses: Losses
) -> None:
    optimizer = sgd(mlp)
    with watch(mlp, optimizer, budget=0.02) as dbg:
        mine = train(mlp, optimizer, STEPS)
    run = read(dbg).facts.run
    assert (run.steps, run.notes[m.N_STEPS], run.notes[m.N_BACKWARDS]) == (STEPS, STEPS, STEPS)
    seen = losses(dbg)
    assert STEPS / (2 * schedule.LONGEST_REST) < len(seen) < STEPS / 2
    assert set(seen) <= set(mine)


def test_training_is_the_same(mlp: nn.Module, watch: Watch, train: Train) -> None:
    twin = copy.deepcopy(mlp)
    torch.manual_seed(1)
    alone = train(twin, sgd(twin), STEPS)
    torch.manual_seed(1)
    with watch(mlp, budget=0.02):
        assert train(mlp, sgd(mlp), STEPS) == alone


def test_another_optimizer_ends_the_rest(
    mlp: nn.Module, watch: Watch, read: Read, train: Train
) -> None:
    """From its making on, each step is followed again: two optimizers may take turns."""
    with watch(mlp, budget=0.02) as dbg:
        train(mlp, sgd(mlp), STEPS)
        train(mlp, sgd(mlp), 3)
        assert dbg.step == STEPS + 3
    assert read(dbg).facts.run.notes[m.N_STEPS] == STEPS + 3


def test_steps_that_are_asked_for_are_all_looked_at(
    mlp: nn.Module, watch: Watch, read: Read, train: Train
) -> None:
    """A repetition looks at each step around the one that broke, however poor it is."""
    optimizer = sgd(mlp)
    with watch(mlp, optimizer, budget=0.02) as dbg:
        assert dbg._watch is not None
        dbg._watch.dense_from = 130
        train(mlp, optimizer, 140)
    looks = next(s.steps.tolist() for _, s in read(dbg).each(Kind.MODULE, m.ACT_RMS))
    assert looks[-10:] == list(range(130, 140))
    assert len(looks) < 100
