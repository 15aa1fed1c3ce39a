"""What a trial shows: whether and how it fails, in terms that changed losses share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import extract
from neuraldbg.core.record import Record
from neuraldbg.core.silence import LOOKS
from neuraldbg.core.trainings import that_began
from neuraldbg.core.trajectory import trajectory
from neuraldbg.core.view import View


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run, or the first part of one, went.

    Attributes:
        kind: `nonfinite`, `diverged`, `crashed`, `not_learning` or `none`.
        level: 0 (learns) to 1 (fails).
        learnt: Share of the loss that was learnt away, 0..1: of the chance level where it
            is known, else of the first loss; 0 for a run that broke down.
        first, last: The loss at both ends.
        evaluation: The script's own evaluation loss at the end, or None.
        onset: Where the failure shows first.
        steps: How far it went.
        exception: What ended it.
        others: Where the losses of further optimizers end; what is judged is the first one's.
        deaf: Weights that an optimizer holds and that got no gradient but zero at any look.
    """

    kind: str
    level: float
    learnt: float
    first: float
    last: float
    evaluation: float | None
    onset: int | None
    steps: int
    exception: str = ""
    others: tuple[float, ...] = ()
    deaf: int = 0

    @property
    def broke(self) -> bool:
        """Whether it broke down, and did not only fail to learn."""
        return self.kind in ("nonfinite", "diverged", "crashed")


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a run is judged: the steps up to `last` of the training that begins at `began`."""

    last: int
    began: int = 0


def read(path: Path, scope: Scope) -> Outcome:
    """The outcome of a trial from its run file.

    Raises:
        RunFileError: It cannot be read.
    """
    from neuraldbg.store.reader import load_record

    return of(load_record(path), scope)


@np.errstate(all="ignore")
def of(record: Record, scope: Scope) -> Outcome:
    """The outcome of a run, as far as a scope goes."""
    run = record.facts.run
    view = _view(that_began(record, scope.began), scope.last)
    trouble, path = view.trouble, view.path
    crashed = run.finished == "exception" and run.steps <= scope.last + 1
    kind = "crashed" if crashed and trouble.kind != "nonfinite" else trouble.kind
    broke = kind in ("nonfinite", "diverged", "crashed")
    return Outcome(
        kind=kind,
        level=1.0 if broke else trouble.level,
        learnt=0.0 if broke else _learnt(view),
        first=path.first,
        last=path.last if kind != "nonfinite" else math.nan,
        evaluation=_evaluation(view),
        onset=run.steps - 1 if kind == "crashed" else trouble.step,
        steps=min(run.steps, scope.last + 1),
        exception=str(run.notes.get(m.N_EXCEPTION) or "") if crashed else "",
        others=_others(view.record),
        deaf=sum(_deaf(view, p.name) for p in view.weights if p.optimizer is not None),
    )


def _deaf(view: View, weight: str) -> bool:
    none = view.param(weight, m.P_GRAD_NONE).values
    return len(none) >= LOOKS and not view.param(weight, m.P_GRAD).values.any()


def _view(record: Record, last_step: int) -> View:
    channels = {c: s.between(0, last_step) for c, s in record.channels.items()}
    part = replace(record, channels=channels)
    return View(part, extract(part))


def _others(record: Record) -> tuple[float, ...]:
    further = sorted(fact.index for fact in record.facts.losses if fact.index > 0)
    return tuple(trajectory(record, f"loss.{index}").last for index in further)


def _learnt(view: View) -> float:
    gain = view.path.gain
    share = view.path.fall if gain is None else gain
    return float(np.clip(share, 0.0, 1.0)) if math.isfinite(share) else 0.0


def _evaluation(view: View) -> float | None:
    from neuraldbg.core.facts import Kind

    series = view.record.series(Kind.LOSS, "evaluation", m.L_VALUE).finite()
    return float(series.values[-1]) if len(series) else None
