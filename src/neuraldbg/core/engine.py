"""From a record to a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neuraldbg.core import plugins
from neuraldbg.core.causes import Finding, all_causes
from neuraldbg.core.detect import extract
from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis, Evidence
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Gap
from neuraldbg.core.graph import chain_of, couplings
from neuraldbg.core.infer import REPORTED, Scored, weigh_all
from neuraldbg.core.offender import unseen
from neuraldbg.core.record import Record
from neuraldbg.core.trainings import alone, trainings
from neuraldbg.core.view import View

FAILED = 0.5  # trouble from which the verdict is `failed` and not only `suspect`
HYPOTHESES = 6
VERDICTS = ("healthy", "suspect", "failed")  # from good to bad


@dataclass(frozen=True, slots=True)
class _Judged:
    """What was concluded of a run, or of one training in it, which begins at step `since`."""

    view: View
    ranked: list[Scored]
    since: int = 0

    def told(self, least: float) -> list[Scored]:
        """The hypotheses worth telling, with at least that confidence."""
        return _reportable(self.view, self.ranked, least)

    @property
    def gravity(self) -> int:
        """The place of the verdict in `VERDICTS`."""
        return VERDICTS.index(_verdict(self.view, self.told(REPORTED)))


# Numbers of a run that exploded overflow in medians and means, too: infinity is the answer.
@np.errstate(all="ignore")
def diagnose(
    record: Record, stored: Iterable[SemanticEvent] = (), *, least: float = REPORTED
) -> Diagnosis:
    """Find out what is wrong with a run.

    Where several trainings follow one another, the one that fails most clearly is told of.

    Args:
        record: Facts and series.
        stored: Events kept in the run file (seen live, or before old readings were thinned).
        least: Confidence from which a hypothesis is told.
    """
    gaps = list(record.facts.gaps)

    def failed(what: str) -> Callable[[str, Exception], None]:
        def note(name: str, error: Exception) -> None:
            gaps.append(Gap(f"{what} {name}", f"{type(error).__name__}: {error}"))

        return note

    def judge(part: Record, kept: Iterable[SemanticEvent]) -> _Judged:
        view = View(part, merge(extract(part, failed("detector")), kept))
        return _Judged(view, weigh_all(view, failed("cause")))

    judged = _worst(record, tuple(stored), judge)
    view, scored = judged.view, judged.told(least)
    for name, error in plugins.FAULTY.items():
        failed("plug-in")(name, error)
    hypotheses = tuple(_hypothesis(view, s, least, judged.since) for s in scored)
    gaps = list(dict.fromkeys(gaps))
    return Diagnosis(
        facts=replace(record.facts, gaps=tuple(gaps)),
        verdict=_verdict(view, scored),
        hypotheses=hypotheses,
        events=view.events,
        couplings=tuple(couplings(view)) if hypotheses else (),
        gaps=tuple(gaps),
        overhead=record.facts.overhead,
        headline=_headline(judged),
        began=judged.since,
    )


def _worst(
    record: Record,
    stored: tuple[SemanticEvent, ...],
    judge: Callable[[Record, Iterable[SemanticEvent]], _Judged],
) -> _Judged:
    """The run as a whole, or a training in it of which something worse is to be said."""

    def each() -> Iterator[_Judged]:
        yield judge(record, stored)
        several = trainings(record)
        for training in several if len(several) > 1 else ():
            kept = [e for e in stored if training.first <= e.step <= training.last]
            found = judge(alone(record, training), kept)
            if training.continues and found.view.path.gain is None and not found.view.breaks:
                continue
            yield replace(found, since=training.first)

    return max(each(), key=lambda found: found.gravity)


def _reportable(view: View, ranked: list[Scored], least: float) -> list[Scored]:
    """The hypotheses worth telling; of a run that broke down, at least the best guess."""
    told = [s for s in ranked if s.confidence >= least]
    told = told[:HYPOTHESES] if least == REPORTED else told
    if not told and view.breaks:
        missed = unseen(view)
        return ranked[:1] if ranked and missed is None else [_best_guess(view, missed)]
    return told


def _best_guess(view: View, missed: int | None) -> Scored:
    """The commonest cause of such a breakdown, where nothing speaks for any other.

    Args:
        view: The run.
        missed: The step at which it broke, if that fell between two looks.
    """
    id = "nonfinite_operation" if view.trouble.kind == "nonfinite" else "lr_too_high"
    first = next((e for e in view.events if e.after == "nonfinite"), None)
    seen = Evidence(view.trouble.text, 0.0, "loss", view.trouble.step)
    why = "was not seen" if missed is None else f"at step {missed} fell between two looks"
    summary = f"What broke the run {why}; {id} is the commonest cause of such a breakdown."
    if missed is not None:
        summary += " `neuraldbg verify` repeats the run and looks at each step around that one."
    where = (first.where,) if first is not None else ()
    finding = Finding((seen,), where, view.trouble.step, summary)
    return Scored(all_causes()[id], finding, -math.inf, ())


def merge(
    found: tuple[SemanticEvent, ...], stored: Iterable[SemanticEvent]
) -> tuple[SemanticEvent, ...]:
    """Events without repetition; one that was stored wins over its later re-discovery."""
    # What came before is not compared: thinning may have taken it away.
    kept = {(e.kind, e.where, e.after, e.step): e for e in (*found, *stored)}
    return tuple(sorted(kept.values(), key=lambda e: (e.step, e.where, e.id)))


def early_events(record: Record) -> list[SemanticEvent]:
    """The events of a record whose old readings are about to be thinned."""
    return list(extract(record))


def _verdict(view: View, scored: list[Scored]) -> str:
    if not scored:
        return "healthy"
    certain = scored[0].confidence >= FAILED
    return "failed" if certain and view.trouble.level >= FAILED else "suspect"


def _headline(judged: _Judged) -> str:
    text, steps = judged.view.trouble.text, judged.view.facts.run.steps
    if judged.since:
        return f"in the training that begins at step {judged.since}, {text} ({steps} steps in all)"
    return f"{text} ({steps} steps)" if steps else "no training step was seen"


def _hypothesis(view: View, scored: Scored, least: float, since: int) -> CausalHypothesis:
    cause, finding = scored.cause, scored.finding
    evidence = sorted(finding.evidence, key=lambda e: -abs(e.weight))
    symptoms = tuple(
        Evidence(f"it explains that {s.text}", s.weight, s.where, s.step) for s in scored.explained
        if s.text not in {e.text for e in evidence}
    )  # fmt: skip
    return CausalHypothesis(
        cause=cause.id,
        confidence=round(max(scored.confidence, least), 4),
        where=tuple(w for w in finding.where if w),
        first_step=None if finding.first_step is None else max(finding.first_step, since),
        summary=finding.summary or cause.title,
        chain=tuple(chain_of(view, scored)),
        evidence=tuple(e for e in evidence if e.weight > 0) + symptoms,
        against=tuple(e for e in evidence if e.weight < 0),
        repair=finding.repair or cause.repair,
    )
