"""Losses as they are met."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.torch.evaluation import EvaluationSide
from neuraldbg.torch.seen import SUSPICIOUS, LossSide


class Book:
    """A stream that keeps what is put into it."""

    def __init__(self) -> None:
        self.kept: dict[Channel, float] = {}

    def put(self, channel: Channel, value: float) -> None:
        self.kept[channel] = value


@pytest.fixture
def side() -> LossSide:
    made = LossSide(Book(), Book(), lambda _: None, lambda _: None)  # type: ignore[arg-type]
    made.steps = made._steps.kept  # type: ignore[attr-defined]
    return made


def loss(value: float, **settings: Any) -> Tensor:
    return torch.tensor(value, requires_grad=True, **settings)


def test_the_mean_of_the_losses_goes_to_the_optimizer(side: LossSide) -> None:
    for value in (1.0, 4.0):
        side.note(loss(value))
    assert side.settle(0, 0, closure=False) == 2.5
    assert side.settle(0, 0, closure=False) is None
    side.note(loss(7.0))
    assert side.settle(1, 0, closure=False) == 7
    assert side.steps == {  # type: ignore[attr-defined]
        Channel(Kind.LOSS, "loss", m.L_VALUE): 2.5,
        Channel(Kind.LOSS, "loss.1", m.L_VALUE): 7.0,
    }


def test_of_a_closure_the_first_counts(side: LossSide) -> None:
    for value in (3.0, 2.0, 1.0):
        side.note(loss(value))
    assert side.settle(0, 0, closure=True) == 3
    assert side.waiting == []


def test_double_precision_is_kept(side: LossSide) -> None:
    side.note(loss(1 / 3, dtype=torch.float64))
    assert side.settle(0, 0, closure=False) == 1 / 3


def test_a_loss_of_many_numbers_counts_as_their_mean(side: LossSide) -> None:
    side.note(torch.tensor([1.0, 3.0], requires_grad=True))
    side.note(torch.tensor([[4.0]], requires_grad=True))
    assert side.settle(0, 0, closure=False) == 3


def test_a_loss_may_be_forgotten(side: LossSide) -> None:
    side.note(loss(1.0))
    side.note(loss(2.0))
    assert side.forget()
    assert side.settle(0, 0, closure=False) == 1
    assert not side.forget()


def test_a_loss_without_a_value_is_passed_over(side: LossSide) -> None:
    side.note(torch.ones((), device="meta", requires_grad=True))
    assert side.waiting == []


class Far(Tensor):
    """A number that says it is elsewhere."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("xpu")

    def to(self, *_: Any, **__: Any) -> Far:  # type: ignore[override]
        return self


def test_losses_on_a_device_come_later(side: LossSide) -> None:
    side.note(torch.tensor(2.0).as_subclass(Far))
    assert side.settle(1, 5, closure=False) is None
    ((step, channel, value),) = side.arrived(wait=False)
    assert (step, channel.name, value) == (5, "loss.1", 2.0)


class Scaler:
    def get_scale(self) -> float:
        return 8.0


def test_scaled_losses_are_kept_unscaled_while_they_live(side: LossSide) -> None:
    scaler, first, second = Scaler(), loss(1.0), loss(2.0)
    scaled = [8 * first, 8 * second]
    for plain, result in zip((first, second), scaled, strict=True):
        side.scaled(scaler, plain, result)
    for result in scaled:
        side.note(result)
    assert [float(x) for x in side.waiting] == [1, 2]
    assert (side.scaler, side.scale()) == (scaler, 8.0)
    del scaled, result
    side.settle(0, 0, closure=False)
    assert side._unscaled == []
    del scaler
    assert (side.scaler, side.scale()) == (None, None)


def test_what_is_suspicious(side: LossSide) -> None:
    assert not side.suspicious(2.0)
    assert not any(side.suspicious(2.0 + 0.1 * (i % 3)) for i in range(50))
    assert side.suspicious(2.1 * SUSPICIOUS + 0.1)
    assert all(side.suspicious(x) for x in (math.nan, math.inf, -math.inf))
    assert not side.suspicious(2.0)


def test_a_broadcast_is_remembered(side: LossSide) -> None:
    """Shapes of the last batch may fit by chance."""
    column = nn.Linear(2, 1)(torch.ones(3, 2))
    side.read(((column - torch.ones(3)) ** 2).mean())
    side.settle(0, 0, closure=False)
    side.read(((column - torch.ones(3, 1)) ** 2).mean())
    side.settle(0, 1, closure=False)
    assert set(side.facts[0].broadcast) == {(3, 1), (3,)}


def test_targets_are_batches(side: LossSide) -> None:
    side.read(F.cross_entropy(nn.Linear(2, 3)(torch.ones(4, 2)), torch.tensor([0, 1, 1, 1])))
    kept = side._looks.kept  # type: ignore[attr-defined]
    assert kept[Channel(Kind.BATCH, "target", m.B_MAJORITY)] == 0.75


def test_evaluation_losses_between_steps_make_one_reading() -> None:
    book = Book()
    side = EvaluationSide(book)  # type: ignore[arg-type]
    side.settle(None)
    assert book.kept == {}
    for value in (1.0, 2.0, 6.0):
        side.add(torch.tensor(value))
    side.settle(None)
    assert book.kept == {Channel(Kind.LOSS, "evaluation", m.L_VALUE): 3.0}
    book.kept.clear()
    side.settle(None)
    assert book.kept == {}


def test_evaluation_losses_of_a_run(watch: Any, read: Any, mlp: nn.Module) -> None:
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    mine = []
    with watch(mlp, optimizer) as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(mlp(torch.randn(8, 4)), torch.ones(8, 2)).backward()
            optimizer.step()
            with torch.no_grad():
                found = [
                    F.mse_loss(mlp(torch.randn(8, 4)), torch.ones(8, 2)).item() for _ in range(2)
                ]
            mine.append(sum(found) / 2)
    series = read(dbg).series(Kind.LOSS, "evaluation", m.L_VALUE)
    assert series.values.tolist() == pytest.approx(mine)
