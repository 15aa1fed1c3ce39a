"""Gradient health: vanishing, exploding, zero, absent, not finite."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import detector
from neuraldbg.core.detect.states import event, transitions
from neuraldbg.core.events import EventType, GradientHealth, SemanticEvent
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Floats, Record, Series

# A layer's gradient this much smaller than the largest among the layers: AUTOTRAINER's
# ratio of first to last layer (ICSE 2021, default 1e-3).
VANISHING_RATIO: Final = 1e-3
# This much above the module's own running median. SPAM (2025) calls a gradient a spike
# beyond 50 times its mean square, PaLM-like spikes reach 1,000 times.
EXPLODING_RATIO: Final = 100.0
# Last resort, where there is nothing to compare with: under this root mean square a
# gradient is lost in the rounding of an Adam epsilon (1e-8) and of float32 sums.
VANISHING_FLOOR: Final = 1e-10
BASELINE: Final = 20  # looks of the running median


@detector
def gradients(record: Record) -> Iterator[SemanticEvent]:
    """Transitions of the gradient at every module with a gradient reading."""
    series = dict(record.each(Kind.MODULE, m.GRAD_RMS))
    leaf = {x.name for x in record.facts.modules if x.leaf}
    largest = _largest([s for n, s in series.items() if n in leaf])
    for name, own in series.items():
        if name in leaf:
            yield from _detect_gradient_transition(name, own, largest)
    yield from _absent(record)


def _largest(series: list[Series]) -> dict[int, float]:
    """The largest gradient among the modules, by step."""
    if not series:
        return {}
    steps = np.concatenate([s.steps for s in series])
    values = np.concatenate([s.values for s in series])
    finite = np.isfinite(values)
    known, at = np.unique(steps[finite], return_inverse=True)
    out = np.zeros(len(known))
    np.maximum.at(out, at, values[finite])
    return dict(zip(known.tolist(), out.tolist(), strict=True))


def _detect_gradient_transition(
    name: str, series: Series, largest: dict[int, float]
) -> Iterator[SemanticEvent]:
    """State changes of one module's gradient.

    Args:
        name: The module.
        series: Root mean square of the gradient at its output.
        largest: The largest of all modules' gradients, by step: the scale.
    """
    values = series.values.tolist()
    scale = [largest.get(step, 0.0) for step in series.steps.tolist()]
    usual = surely_healthy(series.values, np.array(scale))
    states = [
        GradientHealth.HEALTHY if usual[i] else gradient_state(values, i, scale[i])
        for i in range(len(values))
    ]
    for change in transitions(
        states,
        start=GradientHealth.UNKNOWN,
        quiet=GradientHealth.HEALTHY,
        at_once=frozenset({GradientHealth.NONFINITE}),
    ):
        step = int(series.steps[change.at])
        value = float(series.values[change.at])
        yield event(EventType.GRADIENT, name, step, change, rms=value, largest=scale[change.at])


def surely_healthy(values: Floats, scale: Floats) -> list[bool]:
    """Where a gradient is healthy whatever came before it, which spares `gradient_state`.

    No median of earlier ones is below the smallest of all, so nothing explodes that is
    within `EXPLODING_RATIO` of that.
    """
    known = values[np.isfinite(values) & (values > 0)]
    most = EXPLODING_RATIO * float(known.min()) if len(known) else 0.0
    least = np.maximum(VANISHING_RATIO * scale, VANISHING_FLOOR)
    found: list[bool] = (np.isfinite(values) & (values <= most) & (values >= least)).tolist()
    return found


def gradient_state(values: Sequence[float], i: int, largest: float) -> GradientHealth:
    """The momentary state of a gradient: scale-free first, absolute last.

    Args:
        values: The module's gradients, in order of step.
        i: Which of them.
        largest: The largest of all modules' gradients at that step.
    """
    value = values[i]
    if not math.isfinite(value):
        return GradientHealth.NONFINITE
    if value == 0.0:
        return GradientHealth.ZERO
    if largest > 0 and value < VANISHING_RATIO * largest:
        return GradientHealth.VANISHING
    past = [x for x in values[max(0, i - BASELINE) : i] if 0 < x < math.inf]
    if len(past) >= 3 and value > EXPLODING_RATIO * statistics.median(past):
        return GradientHealth.EXPLODING
    if value < VANISHING_FLOOR:
        return GradientHealth.VANISHING
    return GradientHealth.HEALTHY


def _absent(record: Record) -> Iterator[SemanticEvent]:
    """Parameters that an optimizer holds and that never get a gradient."""
    for param in record.facts.params:
        missing = record.series(Kind.PARAM, param.name, m.P_GRAD_NONE)
        if not param.requires_grad or len(missing) == 0 or missing.values.min() < 1:
            continue
        states = [GradientHealth.ABSENT] * len(missing)
        for change in transitions(states, start=GradientHealth.UNKNOWN, quiet=""):
            yield event(EventType.GRADIENT, param.name, int(missing.steps[0]), change)
