"""Loss health: not finite, diverging, spiking, stalled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import detector
from neuraldbg.core.detect.states import Transition, event
from neuraldbg.core.events import EventType, LossHealth, SemanticEvent
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record, Series
from neuraldbg.core.trajectory import Trajectory, running_median, trajectory

# The smoothed loss this many times its best value so far, and above where it began.
DIVERGED: Final = 3.0
# One loss this many robust standard deviations above the running median.
SPIKE: Final = 20.0
SPIKES: Final = 5  # spikes reported at most
# Less than this share of the chance level (or of the first loss) was learnt in all.
STALLED: Final = 0.05
WINDOW: Final = 5


@detector
def losses(record: Record) -> Iterator[SemanticEvent]:
    """Transitions of every loss."""
    for name, series in record.each(Kind.LOSS, m.L_VALUE):
        whole = trajectory(record, name)
        yield from _nonfinite(name, series)
        yield from _diverged(name, series)
        yield from _spikes(name, series)
        yield from _stalled(name, whole)


def _one(
    name: str, before: LossHealth, after: LossHealth, step: int, **numbers: float
) -> SemanticEvent:
    return event(EventType.LOSS, name, step, Transition(before, after, 0), **numbers)


def _nonfinite(name: str, series: Series) -> Iterator[SemanticEvent]:
    bad = np.flatnonzero(~np.isfinite(series.values))
    if len(bad):
        at = int(bad[0])
        yield _one(
            name,
            LossHealth.UNKNOWN,
            LossHealth.NONFINITE,
            int(series.steps[at]),
            value=float(series.values[at]),
        )


def _diverged(name: str, series: Series) -> Iterator[SemanticEvent]:
    good = series.finite()
    if len(good) < 2 * WINDOW:
        return
    smooth = running_median(good.values, WINDOW)
    best = np.minimum.accumulate(smooth)
    start = abs(float(np.median(good.values[:3])))
    over = (smooth > DIVERGED * np.abs(best)) & (smooth > 1.5 * start) & (smooth > 0)
    if over.any():
        at = int(np.argmax(over))
        yield _one(
            name,
            LossHealth.IMPROVING,
            LossHealth.DIVERGING,
            int(good.steps[at]),
            value=float(smooth[at]),
            best=float(best[at]),
        )


def _spikes(name: str, series: Series) -> Iterator[SemanticEvent]:
    good = series.finite()
    if len(good) < 4 * WINDOW:
        return
    level = running_median(good.values, WINDOW)
    rest = good.values - level
    scale = 1.4826 * float(np.median(np.abs(rest))) + 1e-3 * float(np.median(np.abs(level)))
    found = np.flatnonzero(rest > SPIKE * scale)
    for at in found[found >= WINDOW][:SPIKES].tolist():
        yield _one(
            name,
            LossHealth.IMPROVING,
            LossHealth.SPIKING,
            int(good.steps[at]),
            value=float(good.values[at]),
            level=float(level[at]),
        )


def _stalled(name: str, whole: Trajectory) -> Iterator[SemanticEvent]:
    learnt = whole.gain if whole.gain is not None else whole.fall
    if len(whole.series) >= 4 * WINDOW and np.isfinite(learnt) and learnt < STALLED:
        yield _one(
            name,
            LossHealth.UNKNOWN,
            LossHealth.STALLED,
            int(whole.series.steps[0]),
            first=whole.first,
            last=whole.last,
        )
