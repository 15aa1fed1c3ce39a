"""Looking again at what fell between two looks: the first non-finite value of a run.

A long run is looked at now and then, so the step in which a value first stops being finite is
mostly not looked at, and by the next look everything is spoilt. The run is repeated up to that
step, with a look at each of the last ones, and what they show is kept with the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from neuraldbg.core.detect import extract
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.offender import first_nonfinite, offender, unseen
from neuraldbg.core.record import Record
from neuraldbg.core.view import View

# Looks before the step that broke. Backward breaks a step before the loss does, and a run that
# is not repeated bit for bit breaks a little sooner or later.
BEFORE: Final = 16
AFTER: Final = 16


class Window(NamedTuple):
    """The steps to look at again, and the one at which the run broke."""

    first: int
    broke: int
    last: int


@np.errstate(all="ignore")
def window(record: Record, stored: Iterable[SemanticEvent]) -> Window | None:
    """The steps to look at again; None if nothing broke, or what broke it was seen."""
    step = unseen(View(record, (*extract(record), *stored)))
    return None if step is None else Window(max(step - BEFORE, 0), step, step + AFTER)


@np.errstate(all="ignore")
def findings(again: Record, stored: Iterable[SemanticEvent]) -> list[SemanticEvent]:
    """What a repetition shows of the first non-finite value: its origin, and operations at risk.

    Args:
        again: The repetition.
        stored: The events that were kept with it.
    """
    risky = [e for e in stored if e.kind == EventType.NONFINITE]
    view = View(again, (*extract(again), *risky))
    step = first_nonfinite(view)
    if step is None:
        return []
    made = offender(view, step)
    found = [e for e in risky if e.step <= step + 1]
    return found if made is None else [*found, made.event()]


def told(again: Record, stored: Iterable[SemanticEvent], broke: int) -> str:
    """What to tell of a repetition, in a line.

    Args:
        again: The repetition.
        stored: What it showed (`findings`).
        broke: The step at which the original broke.
    """
    step = first_nonfinite(View(again, extract(again)))
    if step is None:
        return f"it did not break by step {broke + AFTER}; does the script seed its random numbers?"
    shown = [str(e.metadata.get("text") or e.where) for e in stored]
    return shown[-1] if shown else f"it broke at step {step}, and no single module made it"
