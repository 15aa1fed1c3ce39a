"""What stands on the page of a run, as plain data for the template."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis, Evidence
from neuraldbg.core.facts import RunFact
from neuraldbg.core.privacy import redact
from neuraldbg.core.record import Record
from neuraldbg.report import words
from neuraldbg.report.charts.axes import Span
from neuraldbg.report.charts.curve import Curve
from neuraldbg.report.charts.heatmap import HeatMap
from neuraldbg.report.names import command_line, count, listing
from neuraldbg.report.pictures import Pictures, channel_of, pictures
from neuraldbg.report.text import gaps, testable

MOST_EVENTS: Final = 200


def content(record: Record, diagnosis: Diagnosis, run: str | None) -> dict[str, Any]:
    """Everything the template asks for."""
    shown = pictures(record, diagnosis)
    ranked = diagnosis.hypotheses
    faults = [h for h in ranked if h.confidence >= words.LIKELY] or list(ranked[:1])
    fact = record.facts.run
    return {
        "title": f"{diagnosis.verdict}: {fact.id}",
        "verdict": diagnosis.verdict,
        "headline": words.headline(diagnosis),
        "faults": [_fault(record, h, shown) for h in faults],
        "rivals": [_fault(record, h, shown) for h in ranked if h not in faults],
        "chain": [link.text for link in ranked[0].chain] if ranked else [],
        "watched": _watched(record, diagnosis),
        "ended": words.ended(diagnosis) if faults and fact.finished else "",
        "changes": count(min(len(diagnosis.events), MOST_EVENTS), "change"),
        "causal": _safe(shown.causal),
        "main": [drawn(curve, shown.span) for curve in shown.main],
        "maps": [_map(map_) for map_ in shown.maps],
        "evidence": [drawn(curve, shown.span) for curve in shown.further],
        "events": diagnosis.events[:MOST_EVENTS],
        "more_events": max(len(diagnosis.events) - MOST_EVENTS, 0),
        "gaps": gaps(diagnosis.gaps, most=len(diagnosis.gaps)),
        "cost": words.cost(diagnosis.overhead.ratio, diagnosis.overhead.seconds),
        "run": facts_of(fact),
        "commands": _commands(diagnosis, run or fact.id),
        "data": _data(shown),
    }


def facts_of(run: RunFact) -> list[tuple[str, str]]:
    """What is public about a run, in the order people ask for it."""
    compiled = f"compiled with {run.backend or '?'}" if run.compiled else "not compiled"
    exception = run.notes.get("exception")
    said = [
        ("Run", run.id),
        ("Command", command_line(redact(run.command)) or "not known"),
        ("Started", run.started or "not known"),
        ("Ended", run.finished or "cut off, or still running"),
        *([("Exception", str(exception))] if exception else []),
        ("Steps", f"{run.steps:,}"),
        ("Device", f"{run.device}, {compiled}"),
        ("Processes", f"rank {run.rank} of {run.world_size}"),
        ("Seed", "not known" if run.seed is None else str(run.seed)),
        ("Torch", run.torch or "not known"),
        ("Python", run.python or "not known"),
        ("NeuralDBG", run.neuraldbg or "not known"),
    ]
    return said if run.world_size > 1 else [line for line in said if line[0] != "Processes"]


def _fault(record: Record, found: CausalHypothesis, shown: Pictures) -> dict[str, Any]:
    strongest = sorted(found.evidence, key=lambda e: -e.weight)
    return {
        "cause": found.cause,
        "summary": found.summary or found.cause.replace("_", " "),
        "where": listing(found.where) or "the whole run",
        "since": None if found.first_step is None else f"step {found.first_step}",
        "sure": words.confidence(found.confidence),
        "confidence": round(found.confidence, 4),
        "tested": words.experiment(found.experiment) if found.experiment else None,
        "repair": found.repair,
        "supporting": _evidence(record, strongest, shown),
        "against": _evidence(record, sorted(found.against, key=lambda e: e.weight), shown),
    }


def _evidence(record: Record, seen: Sequence[Evidence], shown: Pictures) -> list[dict[str, Any]]:
    """Each observation with its weight and, where there is one, its curve."""
    said = []
    for evidence in seen:
        channel = channel_of(record, evidence)
        curve = None if channel is None else shown.evidence.get(channel)
        said.append(
            {
                "text": words.evidence(evidence),
                "weight": f"{evidence.weight:+.1f}",
                "curve": None if curve is None else curve.name,
                "step": evidence.step,
            }
        )
    return said


def _watched(record: Record, diagnosis: Diagnosis) -> str:
    facts = record.facts
    seen = f"{count(len(facts.modules), 'module')} and {count(len(facts.params), 'parameter')}"
    changes = count(len(diagnosis.events), "change")
    return f"Watched {seen} on {facts.run.device}; {changes} of state."


def _commands(diagnosis: Diagnosis, name: str) -> list[str]:
    again, run = shlex.quote(name), diagnosis.facts.run
    commands = [f"neuraldbg explain {again}", f"neuraldbg show {again} --events"]
    if testable(diagnosis):
        commands.insert(0, f"neuraldbg verify {again}")
    if words.repeatable(run):
        commands.insert(0, f"neuraldbg run {command_line(redact(run.command))}")
    return commands


def drawn(curve: Curve, span: Span) -> dict[str, Any]:
    """A curve for the template."""
    return {
        "name": curve.name,
        "title": curve.title,
        "svg": _safe(curve.draw(span)),
        "text": curve.describe(),
    }


def _map(map_: HeatMap) -> dict[str, Any]:
    return {
        "name": map_.name,
        "title": map_.grid.measure.title,
        "svg": _safe(map_.draw()),
        "text": map_.describe(),
        "table": map_.table(),
    }


def _data(shown: Pictures) -> dict[str, Any]:
    """What the script reads out under the pointer."""
    curves = (*shown.main, *shown.further)
    return {
        "first": shown.span.first,
        "steps": shown.span.steps,
        "pictures": {
            **{curve.name: curve.data() for curve in curves},
            **{map_.name: map_.data() for map_ in shown.maps},
        },
    }


def _safe(svg: str) -> Any:  # noqa: ANN401 - Markup, of a library loaded late
    """A picture of ours: `charts.svg` has escaped every word in it."""
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 # nosec B704
