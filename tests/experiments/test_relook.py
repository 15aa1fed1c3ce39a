"""Looking again at what fell between two looks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Channel, Facts, Kind, LossFact, ModuleFact, RunFact
from neuraldbg.core.record import Record, Series
from neuraldbg.experiments.relook import AFTER, BEFORE, Window, findings, told, window

BROKE = 150
HAZARD = SemanticEvent(
    id="hazard-log",
    kind=EventType.NONFINITE,
    where="loss:log",
    step=BROKE,
    before="finite",
    after="hazard",
    metadata={"operation": "log", "trouble": "1 zero and 0 negative of 8 entries"},
)


def record(looks: range, broke: int = BROKE) -> Record:
    """A run whose loss is NaN from a step on, with a module that makes it, and these looks."""
    steps = np.arange(200, dtype=np.int64)
    loss = np.where(steps >= broke, math.nan, 1.0 / (steps + 1))
    seen = np.array(looks, np.int64)
    bad = np.where(seen >= broke, 3.0, 0.0)
    channels = {
        Channel(Kind.LOSS, "loss", m.L_VALUE): Series(steps, loss),
        Channel(Kind.MODULE, "fc", m.ACT_NONFINITE): Series(seen, 0 * bad),
        Channel(Kind.MODULE, "angle", m.ACT_NONFINITE): Series(seen, bad),
    }
    modules = (ModuleFact("fc", "Linear", order=0), ModuleFact("angle", "Angle", order=1))
    run = RunFact("run", ("train.py",), steps=200, finished="ok")
    return Record(Facts(run, modules, (), (), (LossFact(kind="mse"),), ()), channels)


def test_a_break_between_two_looks_is_looked_at_again() -> None:
    sparse = record(range(0, 200, 4))
    assert window(sparse, ()) == Window(BROKE - BEFORE, BROKE, BROKE + AFTER)


def test_a_break_that_was_seen_is_not() -> None:
    assert window(record(range(200)), ()) is None
    assert window(record(range(0, 200, 4)), [HAZARD]) is None


def test_a_run_that_stays_finite_is_not() -> None:
    assert window(record(range(0, 200, 4), broke=1000), ()) is None


def test_the_repetition_shows_the_offender() -> None:
    again = record(range(BROKE - BEFORE, BROKE + AFTER))
    (event,) = findings(again, ())
    assert (event.where, event.step) == ("angle", BROKE)
    assert told(again, [event], BROKE).startswith("angle gives a non-finite value")


def test_the_repetition_shows_operations_at_risk_before_it() -> None:
    again = record(range(0, 200, 4))
    late = replace(HAZARD, id="late", step=BROKE + 9)
    assert findings(again, [HAZARD, late]) == [HAZARD]
    assert told(again, [HAZARD], BROKE) == "loss:log"


def test_a_repetition_that_does_not_break_says_so() -> None:
    again = record(range(200), broke=1000)
    assert findings(again, ()) == []
    assert "did not break" in told(again, (), BROKE)


def test_a_repetition_that_shows_nothing_says_so() -> None:
    again = record(range(0, 200, 4))
    assert findings(again, ()) == []
    assert told(again, (), BROKE) == f"it broke at step {BROKE}, and no single module made it"
