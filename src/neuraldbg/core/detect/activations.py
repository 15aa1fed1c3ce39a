"""Activation health: dead, saturated, collapsed, exploding, not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import detector
from neuraldbg.core.detect.states import event, transitions
from neuraldbg.core.events import ActivationHealth, EventType, SemanticEvent
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Floats, Record, Series

RECTIFIERS: Final = frozenset({"ReLU", "ReLU6", "Threshold", "Hardtanh"})
# Share of units that stay at zero for a whole batch. SageMaker Debugger calls a layer dead
# at 50 %; healthy narrow ReLU layers of the benchmark reach 50 % in single batches.
DEAD_UNITS: Final = 0.9
# Share of values in the flat region: more than half, as in DeepDiagnosis (ICSE 2022).
SATURATED: Final = 0.5
# Share of units that give the same value for every sample of a batch.
COLLAPSED: Final = 0.99
# Root mean square against the median of the module's first looks.
EXPLODING_RATIO: Final = 100.0
FIRST: Final = 5
SHARES: Final = (m.ACT_NEGATIVE_UNITS, m.ACT_FLAT, m.ACT_CONSTANT_UNITS)


# From a code of `_codes` to the state.
STATES: Final = (
    ActivationHealth.HEALTHY,
    ActivationHealth.NONFINITE,
    ActivationHealth.DEAD,
    ActivationHealth.SATURATED,
    ActivationHealth.COLLAPSED,
    ActivationHealth.EXPLODING,
)


@detector
def activations(record: Record) -> Iterator[SemanticEvent]:
    """Transitions of the output of every leaf module."""
    size = record.series(Kind.BATCH, "input", m.B_SIZE).median()
    for module in record.called():
        if not module.leaf:
            continue
        rms = record.series(Kind.MODULE, module.name, m.ACT_RMS)
        others = {key: record.series(Kind.MODULE, module.name, key).on(rms.steps) for key in SHARES}
        several = not size < 2 and module.kind not in ("Embedding", "BatchNorm1d")
        codes = _codes(rms, others, rectifier=module.kind in RECTIFIERS, several=several)
        if codes.any():
            states = [STATES[code] for code in codes.tolist()]
            yield from _events(module.name, rms, others, states)


def _codes(
    rms: Series, shares: dict[str, Floats], *, rectifier: bool, several: bool
) -> NDArray[np.int64]:
    """The momentary state at each look, as a place in `STATES`; the first that applies."""
    found = (
        ~np.isfinite(rms.values),
        rectifier & (shares[m.ACT_NEGATIVE_UNITS] >= DEAD_UNITS),
        shares[m.ACT_FLAT] > SATURATED,
        several & (shares[m.ACT_CONSTANT_UNITS] >= COLLAPSED),
        rms.values > _limits(rms),
    )
    return np.select(found, range(1, len(STATES)), 0)


def _limits(rms: Series) -> Floats:
    """The root mean square at which each look counts as exploding."""
    start = rms.values[:FIRST]
    start = start[np.isfinite(start)]
    usual = float(np.median(start)) if len(start) else 0.0
    # An output that starts at zero (a gate, an adapter) has no scale to explode from.
    limit = EXPLODING_RATIO * usual if usual > 0 else math.inf
    out = np.full(len(rms), limit)
    out[:FIRST] = math.inf
    return out


def _events(
    name: str, rms: Series, others: dict[str, Floats], states: list[ActivationHealth]
) -> Iterator[SemanticEvent]:
    for change in transitions(
        states,
        start=ActivationHealth.UNKNOWN,
        quiet=ActivationHealth.HEALTHY,
        at_once=frozenset({ActivationHealth.NONFINITE}),
    ):
        numbers = {
            key.removeprefix("act_"): float(values[change.at])
            for key, values in others.items()
            if not np.isnan(values[change.at])
        }
        value = float(rms.values[change.at])
        step = int(rms.steps[change.at])
        yield event(EventType.ACTIVATION, name, step, change, rms=value, **numbers)
