"""Whatever the model and the loop, and however compiled: the same training, the same readings.

A cell of the matrix passes if training is the same to the last bit as without a monitor,
and if every tensor that ordinary hooks see in eager mode was read too, with the same
statistics, or is named in a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record

from .conftest import Observe
from .patterns import PATTERNS, Call, Pattern
from .plain import Plain, gradient_statistics, output_statistics
from .twins import ROUNDED, STEPS

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning",
)
# Statistics that need no unit dimension; the others are compared in test_modules.
UNITS = {m.ACT_NEGATIVE_UNITS, m.ACT_CONSTANT_UNITS, m.ACT_FLAT}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@dataclass
class Trained:
    """What a loop left behind, bit by bit."""

    losses: list[Tensor] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)

    def same_as(self, other: Trained) -> bool:
        mine, theirs = ([*t.losses, *t.state.values()] for t in (self, other))
        return all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


class Loop:
    """A pattern that is ready to be trained, always from the same start."""

    def __init__(self, pattern: Pattern, compile_: Callable[[nn.Module], Call]) -> None:
        torch.manual_seed(7)
        self.pattern = pattern
        self.model = pattern.make()
        self.optimizers = pattern.optimizers(self.model)
        self.call = compile_(self.model)
        self.between = pattern.between
        self.trained = Trained()

    def train(self) -> Trained:
        for step in range(STEPS):
            torch.manual_seed(step)
            batch = self.pattern.batch()
            self.between(self.model, batch)
            loss = self.pattern.step(self.call, self.model, batch, self.optimizers)
            self.trained.losses.append(loss)
        self.trained.state = {n: t.clone() for n, t in self.model.state_dict().items()}
        return self.trained


def as_it_is(model: nn.Module) -> Call:
    return model


def oracle(pattern: Pattern) -> Plain:
    """The loop alone, in eager mode, with ordinary hooks."""
    loop = Loop(pattern, as_it_is)
    loop.between = lambda model, batch: None
    plain = Plain(loop.model)
    loop.optimizers[pattern.leader].register_step_post_hook(lambda *_: plain.end_step())
    loop.train()
    return plain


def compare(record: Record, pattern: Pattern, plain: Plain, rounding: float) -> None:
    """Every call that the oracle saw was read with the same statistics."""
    compared = 0
    for step, (outputs, _, gradients) in enumerate(plain.steps):
        for seen, statistics in (
            (outputs, statistics_of_outputs),
            (gradients, gradient_statistics),
        ):
            for name, calls in seen.items():
                if name in pattern.unseen or not watched(record, name):
                    continue
                for metric, value in statistics(calls).items():
                    if metric not in UNITS:
                        check(record, (step, name, metric), value, rounding)
                        compared += 1
    assert compared >= STEPS * 20


def statistics_of_outputs(calls: list[Tensor]) -> dict[str, float]:
    return output_statistics(calls, None)


def watched(record: Record, name: str) -> bool:
    """Whether a module is none of those that add nothing to what its parts show."""
    kind = next(f.kind for f in record.facts.modules if f.name == name)
    return kind != "Sequential" and "parametrizations" not in name.split(".")


def check(record: Record, place: tuple[int, str, str], value: float, rounding: float) -> None:
    step, name, metric = place
    series = record.series(Kind.MODULE, name, metric)
    assert step in series.steps, place
    read = float(series.values[list(series.steps).index(step)])
    near = max(rounding, 1e-6 if metric in ROUNDED else 0.0)
    assert read == pytest.approx(float(np.float32(value)), rel=near, abs=rounding), place


def cell(observe: Observe, name: str, compile_: Callable[[nn.Module], Call], near: float) -> Record:
    pattern = PATTERNS[name]
    plain = oracle(pattern)
    torch._dynamo.reset()
    alone = Loop(pattern, compile_).train()
    torch._dynamo.reset()
    loop = Loop(pattern, compile_)
    record = observe(loop.model, loop.train)
    assert loop.trained.same_as(alone)
    compare(record, pattern, plain, max(near, pattern.rounding))
    told = " ".join(f"{gap.what}: {gap.why}" for gap in record.facts.gaps)
    gaps = pattern.gaps if compile_ is as_it_is else pattern.gaps + pattern.compiled_gaps
    assert all(gap in told for gap in gaps)
    assert bool(record.facts.gaps) == bool(gaps), record.facts.gaps
    return record


@pytest.mark.parametrize("name", PATTERNS)
def test_in_eager_mode(name: str, observe: Observe) -> None:
    record = cell(observe, name, as_it_is, 0.0)
    assert not record.facts.run.compiled


@pytest.mark.parametrize("name", PATTERNS)
def test_compiled(name: str, observe: Observe) -> None:
    def compile_(model: nn.Module) -> Any:
        return PATTERNS[name].compile(model, backend="aot_eager")

    record = cell(observe, name, compile_, 1e-5)
    assert record.facts.run.compiled == (not PATTERNS[name].skipped)
