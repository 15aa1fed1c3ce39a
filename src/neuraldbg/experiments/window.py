"""How far a trial must go: shortly past the step at which the symptom showed."""

from __future__ import annotations

import math
from typing import Final

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.experiments.outcome import Scope, of

# A rate a tenth as large may only put a breakdown off; so many times the steps show it.
LATER: Final = 3
MARGIN: Final = 50  # steps past the onset at least
LEAST: Final = 20  # steps below which nothing can be said about learning
NEVER: Final = 10**9  # where what counts comes after the last step
START: Final = 6.0  # seconds to import torch and the script's libraries, until measured
TRIALS: Final = 4  # trials that a budget should allow at the least


def scope(record: Record, began: int, budget: float) -> Scope:
    """What trials of this run are judged on; after its last step they end.

    Args:
        record: The run.
        began: The first step of the training that fails.
        budget: Seconds for all trials together.
    """
    steps = max(record.facts.run.steps, 1)
    whole = of(record, Scope(steps, began))
    wanted = steps - 1
    if whole.broke and whole.onset is not None:
        wanted = began + max(LATER * (whole.onset - began), whole.onset - began + MARGIN)
        if whole.kind != "crashed":
            wanted = min(wanted, steps - 1)
    pace = record.series(Kind.RUN, "", m.R_SECONDS).median()
    if math.isfinite(pace) and pace > 0:
        affordable = int((budget / TRIALS - START) / pace)
        wanted = min(wanted, max(affordable, LEAST))
    return Scope(max(wanted, 1), began)
