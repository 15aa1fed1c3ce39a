"""One plan under watch, as `neuraldbg run` watches a script."""

from __future__ import annotations

import gc
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from neuraldbg.testing import loop
from neuraldbg.testing.faults import Shows, fails
from neuraldbg.testing.plan import Course, Plan

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis

BUDGET = 0.02


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a plan.

    Attributes:
        metric: The program's own metric; NaN if it broke off.
        suffered: Whether the run failed by the criterion that was asked for.
        diagnosis: What NeuralDBG says; None if it saw no training
            or did not watch.
        error: The exception that ended the program, in a line, or None.
    """

    metric: float
    suffered: bool
    diagnosis: Diagnosis | None
    error: str | None = None


def watch(plan: Plan, seed: int, out: Path, shows: Shows = fails) -> Trial:
    """Carry out a plan under observation, and leave the process as it was.

    Args:
        plan: What to train.
        seed: Seeds everything.
        out: Where the run file goes.
        shows: Judges whether the run suffered.
    """
    from neuraldbg.torch import attach

    start = loop.pretrained(plan, seed)
    session = attach.start(out, BUDGET, strict=False, command=[f"{plan.name}.py"])
    course, error = _attempt(plan, seed, start)
    found = session.finish("ok" if error is None else "exception", error)
    trial = _judged(plan, course, error, shows, found)
    del course, error, session
    _clean()
    return trial


def unwatched(plan: Plan, seed: int, shows: Shows = fails) -> Trial:
    """Carry out a plan without observation: quicker, where only the outcome matters."""
    course, error = _attempt(plan, seed, loop.pretrained(plan, seed))
    return _judged(plan, course, error, shows, None)


def _attempt(
    plan: Plan, seed: int, start: loop.State | None
) -> tuple[Course | None, Exception | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return loop.run(plan, seed, start), None
        except Exception as error:  # the program's own failure is a result
            return None, error


def _judged(
    plan: Plan,
    course: Course | None,
    error: Exception | None,
    shows: Shows,
    diagnosis: Diagnosis | None,
) -> Trial:
    told = None if error is None else f"{type(error).__name__}: {error}"
    if course is None:
        return Trial(math.nan, True, diagnosis, told)  # noqa: FBT003 - it broke off
    return Trial(course.metric, shows(plan, course), diagnosis, told)


def _clean() -> None:
    """See that nothing of a run is left that the next one could meet."""
    from neuraldbg.torch.boundaries import LISTENERS

    if LISTENERS:
        msg = f"{len(LISTENERS)} listeners are left over from the last run"
        raise RuntimeError(msg)
    torch.set_grad_enabled(True)
    gc.collect()
