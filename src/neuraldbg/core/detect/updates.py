"""Update health: weights that do not move, hardly move, or move too far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import detector
from neuraldbg.core.detect.states import event, transitions
from neuraldbg.core.events import EventType, SemanticEvent, UpdateHealth
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record

# Update over weight in one step. About 1e-3 is the usual advice; healthy runs of the
# benchmark with Adam stay under 0.2 after their first steps and above 1e-5.
HUGE: Final = 0.3
TINY: Final = 1e-6


@detector
def updates(record: Record) -> Iterator[SemanticEvent]:
    """Transitions of the update of every weight matrix that an optimizer holds."""
    for param in record.facts.params:
        if len(param.shape) < 2 or not param.init_rms:
            continue
        ratio = record.series(Kind.PARAM, param.name, m.P_RATIO)
        still = record.series(Kind.PARAM, param.name, m.P_STILL)
        if len(ratio) == 0:
            continue
        stays = still.on(ratio.steps)
        states = [_state(*reading) for reading in zip(ratio.values, stays, strict=True)]
        for change in transitions(states, start=UpdateHealth.UNKNOWN, quiet=UpdateHealth.HEALTHY):
            step, value = int(ratio.steps[change.at]), float(ratio.values[change.at])
            yield event(EventType.UPDATE, param.name, step, change, ratio=value)


def _state(ratio: float, still: float) -> UpdateHealth:
    if not math.isfinite(ratio):
        return UpdateHealth.UNKNOWN
    if ratio == 0.0 or still >= 1:
        return UpdateHealth.FROZEN
    if ratio > HUGE:
        return UpdateHealth.HUGE
    return UpdateHealth.TINY if ratio < TINY else UpdateHealth.HEALTHY
