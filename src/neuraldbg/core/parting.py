"""Where two runs part: the first place, in order of computation, that rounding cannot explain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.core.rounding import Rounding
from neuraldbg.core.view import ADAPTIVE

FORWARD: Final = (m.ACT_RMS, m.ACT_ABSMAX, m.ACT_MEAN)
BACKWARD: Final = (m.GRAD_RMS, m.GRAD_ABSMAX, m.GRAD_MEAN)
BATCH: Final = (m.B_ABSMAX, m.B_STD, m.B_MEAN)
MEANS: Final = frozenset({m.ACT_MEAN, m.GRAD_MEAN, m.B_MEAN})
# Training amplifies differences. Between two looks, and from one module to the next, this
# much is taken for amplification; a wrong result is a larger leap.
AMPLIFIED: Final = 100.0
# A signal that is smaller than this share of the largest of its kind in the step is compared
# by that share: where a gradient cancels, the rounding of what cancels is all that is left.
FAINT: Final = 1e-2
EQUAL: Final = 1e-5  # relative difference of initial weights that were drawn alike


@dataclass(frozen=True, slots=True)
class Apart:
    """A difference at one place and step.

    Attributes:
        step: The step.
        where: Module, or input of the model.
        side: `forward`, `backward` or `batch`.
        metric: What was compared.
        values: The readings of both runs.
        roundings: The difference in units of the difference that rounding explains there.
    """

    step: int
    where: str
    side: str
    metric: str
    values: tuple[float, float]
    roundings: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have in common.

    Attributes:
        obstacle: Why they cannot be compared; empty if they can.
        first: Where they part; None if nowhere.
        steps: The steps that both were looked at, up to where they part.
        largest: By module, the largest difference at each of those steps, in roundings.
        dtype: The least precise type that was computed in.
    """

    obstacle: str = ""
    first: Apart | None = None
    steps: tuple[int, ...] = ()
    largest: dict[str, dict[int, float]] = field(default_factory=dict)
    dtype: str = "float32"


def compare(one: Record, other: Record) -> Comparison:
    """Find where two runs part."""
    obstacle = _obstacle(one, other)
    if obstacle:
        return Comparison(obstacle)
    return _Walk(one, other).compare()


def _obstacle(one: Record, other: Record) -> str:
    """Why two runs cannot be compared number by number."""
    names = [{x.name for x in r.facts.modules if x.order is not None} for r in (one, other)]
    if not names[0] or not names[1]:
        return "no module was seen in one of the runs"
    if not names[0] & names[1]:
        return "the two runs train different models"
    for mine in one.facts.params:
        theirs = other.param(mine.name)
        if theirs is None:
            continue
        if mine.shape != theirs.shape:
            return f"{mine.name} has other sizes: {mine.shape} and {theirs.shape}"
        a, b = mine.init_rms, theirs.init_rms
        if a is not None and b is not None and abs(a - b) > EQUAL * max(abs(a), abs(b)):
            return f"they start from different weights ({mine.name}): seed the script"
    return ""


class _Walk:
    """Goes through the steps in the order of computation."""

    def __init__(self, one: Record, other: Record) -> None:
        self.runs = (one, other)
        self.rounding = Rounding(one.facts)
        self.drift = 0.0
        known = {x.name for x in other.called()}
        self.order = [x.name for x in one.called() if x.name in known]
        self.largest: dict[str, dict[int, float]] = {}

    def compare(self) -> Comparison:
        steps = self._steps()
        if not steps:
            return Comparison("no step was looked at in both")
        for i, step in enumerate(steps):
            for apart in self._step(step):
                if apart.side != "batch":
                    held = self.largest.setdefault(apart.where, {})
                    held[step] = max(held.get(step, 0.0), apart.roundings)
                if apart.roundings > 1:
                    return self._result(apart, steps[: i + 1])
        return self._result(None, steps)

    def _result(self, first: Apart | None, steps: list[int]) -> Comparison:
        return Comparison("", first, tuple(steps), self.largest, self.rounding.dtype)

    def _steps(self) -> list[int]:
        looked = [
            {int(s) for name in self.order for s in r.series(Kind.MODULE, name, m.ACT_RMS).steps}
            for r in self.runs
        ]
        return sorted(looked[0] & looked[1])

    def _step(self, step: int) -> Iterator[Apart]:
        """Every difference of a step: the batch, then forward, then backward."""
        inputs = sorted({c.name for c in self.runs[0].channels if c.kind is Kind.BATCH})
        yield from self._side(step, "batch", [(x, 0) for x in inputs])
        forward = list(enumerate(self.order))
        yield from self._side(step, "forward", [(name, i) for i, name in forward])
        back = [(name, self.rounding.backward(i)) for i, name in reversed(forward)]
        yield from self._side(step, "backward", back)

    def _side(self, step: int, side: str, places: list[tuple[str, int]]) -> Iterator[Apart]:
        kind = Kind.BATCH if side == "batch" else Kind.MODULE
        metrics = {"batch": BATCH, "forward": FORWARD, "backward": BACKWARD}[side]
        faint = 0.0 if side == "batch" else FAINT * self._loudest(step, metrics[0])
        slack = self._wander(step) if side == "forward" else 0.0
        for name, passed in places:
            read = {x: self._both(kind, name, x, step) for x in metrics}
            gap, metric = max(_distances(read, metrics[0], faint, slack))
            limit = max(self.rounding.expected(passed), AMPLIFIED * self.drift)
            whole = max(_distances(read, metrics[0], faint))[0]
            self.drift = max(self.drift, min(whole, 1.0))
            yield Apart(step, name, side, metric, read[metric], gap / limit)

    def _wander(self, step: int) -> float:
        """How far entries may be apart because an adaptive optimizer moved them.

        It moves an entry by up to the learning rate also where the gradient is nothing but
        rounding, as that of a bias before a normalisation is.
        """
        if not any(o.kind in ADAPTIVE for o in self.runs[0].facts.optimizers):
            return 0.0
        rates = self.runs[0].each(Kind.OPTIMIZER, m.O_LR)
        highest = max((float(s.between(0, step - 1).values.max(initial=0)) for _, s in rates),
                      default=0.0)  # fmt: skip
        return 2 * highest * step

    def _loudest(self, step: int, metric: str) -> float:
        read = [self._both(Kind.MODULE, name, metric, step)[0] for name in self.order]
        return max((x for x in read if math.isfinite(x)), default=0.0)

    def _both(self, kind: Kind, name: str, metric: str, step: int) -> tuple[float, float]:
        """The readings of both runs; a metric that one of them lacks is equal in both."""
        at = np.array([step])
        found = [r.series(kind, name, metric) for r in self.runs]
        if not all(step in x.steps for x in found):
            return (0.0, 0.0)
        a, b = (float(x.on(at)[0]) for x in found)
        return a, b


def _distances(
    read: dict[str, tuple[float, float]], size: str, faint: float, slack: float = 0.0
) -> Iterator[tuple[float, str]]:
    """Relative differences. A mean is measured against the size of what it averages."""
    for metric, (a, b) in read.items():
        scale = max((abs(x) for x in read[size if metric in MEANS else metric]), default=0.0)
        yield _distance(a, b, max(scale, faint), slack), metric


def _distance(a: float, b: float, scale: float, slack: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return max(abs(a - b) - slack, 0.0) / scale if scale > 0 else 0.0
