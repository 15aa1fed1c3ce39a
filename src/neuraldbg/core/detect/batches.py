"""Anomalies of the data: non-finite entries and outlying batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import detector
from neuraldbg.core.detect.states import Transition, event
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record

# A batch whose largest entry is this many times the median batch's: corrupted samples in
# public reports are off by factors of 100 and more, heavy tails rarely exceed 10.
OUTLIER: Final = 30.0
REPORTED: Final = 5


@detector
def batches(record: Record) -> Iterator[SemanticEvent]:
    """Non-finite and outlying batches of inputs and targets."""
    for name, series in record.each(Kind.BATCH, m.B_NONFINITE):
        bad = np.flatnonzero(series.values > 0)
        if len(bad):
            change = Transition("finite", "nonfinite", 0)
            step, count = int(series.steps[bad[0]]), float(series.values[bad[0]])
            share = len(bad) / len(series)
            yield event(EventType.DATA, name, step, change, count=count, batches=share)
    for name, series in record.each(Kind.BATCH, m.B_ABSMAX):
        good = series.finite()
        typical = good.median()
        if len(good) < 10 or not typical > 0:
            continue
        for at in np.flatnonzero(good.values > OUTLIER * typical)[:REPORTED].tolist():
            change = Transition("usual", "outlier", 0)
            largest = float(good.values[at])
            yield event(
                EventType.DATA, name, int(good.steps[at]), change, largest=largest, usual=typical
            )
