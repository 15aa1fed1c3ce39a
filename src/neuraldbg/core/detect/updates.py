"""Update health: weights that do not move, hardly move, or move too far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import detector
from neuraldbg.core.detect.states import event, transitions
from neuraldbg.core.events import EventType, SemanticEvent, UpdateHealth
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record, Series

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
        states = [_state(ratio, still, i) for i in range(len(ratio))]
        for change in transitions(states, start=UpdateHealth.UNKNOWN, quiet=UpdateHealth.HEALTHY):
            step, value = int(ratio.steps[change.at]), float(ratio.values[change.at])
            yield event(EventType.UPDATE, param.name, step, change, ratio=value)


def _state(ratio: Series, still: Series, i: int) -> UpdateHealth:
    value = float(ratio.values[i])
    if not np.isfinite(value):
        return UpdateHealth.UNKNOWN
    if value == 0.0 or (len(still) == len(ratio) and still.values[i] >= 1):
        return UpdateHealth.FROZEN
    if value > HUGE:
        return UpdateHealth.HUGE
    return UpdateHealth.TINY if value < TINY else UpdateHealth.HEALTHY
