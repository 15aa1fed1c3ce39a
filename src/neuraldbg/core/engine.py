"""From a record to a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from neuraldbg.core.detect import extract
from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis, Evidence
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Gap
from neuraldbg.core.graph import chain_of, couplings
from neuraldbg.core.infer import REPORTED, Scored, weigh_all
from neuraldbg.core.record import Record
from neuraldbg.core.view import View

FAILED = 0.5  # trouble from which the verdict is `failed` and not only `suspect`
HYPOTHESES = 6


# Numbers of a run that exploded overflow in medians and means, too: infinity is the answer.
@np.errstate(all="ignore")
def diagnose(record: Record, stored: Iterable[SemanticEvent] = ()) -> Diagnosis:
    """Find out what is wrong with a run.

    Args:
        record: Facts and series.
        stored: Events kept in the run file (seen live, or before old readings were thinned).
    """
    gaps = list(record.facts.gaps)

    def failed(what: str, name: str, error: Exception) -> None:
        gaps.append(Gap(f"{what} {name}", f"{type(error).__name__}: {error}"))

    events = merge(extract(record, partial(failed, "events of")), stored)
    view = View(record, events)
    scored = _reportable(view, weigh_all(view, partial(failed, "cause")))
    hypotheses = tuple(_hypothesis(view, s) for s in scored)
    return Diagnosis(
        facts=replace(record.facts, gaps=tuple(gaps)),
        verdict=_verdict(view, scored),
        hypotheses=hypotheses,
        events=events,
        couplings=tuple(couplings(view)) if hypotheses else (),
        gaps=tuple(gaps),
        overhead=record.facts.overhead,
        headline=_headline(view),
    )


def _reportable(view: View, ranked: list[Scored]) -> list[Scored]:
    """The hypotheses worth telling; of a run that broke down, at least the best guess."""
    told = [s for s in ranked if s.confidence >= REPORTED][:HYPOTHESES]
    if not told and ranked and view.trouble.kind in ("nonfinite", "diverged"):
        return ranked[:1]
    return told


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


def _headline(view: View) -> str:
    steps = view.facts.run.steps
    return f"{view.trouble.text} ({steps} steps)" if steps else "no training step was seen"


def _hypothesis(view: View, scored: Scored) -> CausalHypothesis:
    cause, finding = scored.cause, scored.finding
    evidence = sorted(finding.evidence, key=lambda e: -abs(e.weight))
    symptoms = tuple(
        Evidence(f"it explains that {s.text}", s.weight, s.where, s.step) for s in scored.explained
        if s.text not in {e.text for e in evidence}
    )  # fmt: skip
    return CausalHypothesis(
        cause=cause.id,
        confidence=round(max(scored.confidence, REPORTED), 4),
        where=tuple(w for w in finding.where if w),
        first_step=finding.first_step,
        summary=finding.summary or cause.title,
        chain=tuple(chain_of(view, scored)),
        evidence=tuple(e for e in evidence if e.weight > 0) + symptoms,
        against=tuple(e for e in evidence if e.weight < 0),
        repair=finding.repair or cause.repair,
    )
