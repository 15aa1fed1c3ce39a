"""The pages of `neuraldbg view`: the same report, kept fresh; the list of runs; two compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.privacy import redact
from neuraldbg.core.record import Record
from neuraldbg.report import words
from neuraldbg.report.charts.axes import Span
from neuraldbg.report.charts.curve import Curve
from neuraldbg.report.html import page
from neuraldbg.report.html.content import content, drawn
from neuraldbg.report.names import command_line, listing
from neuraldbg.report.pictures import main_curves, span_of

_SCRIPTS: Final = ("report.js", "view.js")

Side = tuple[str, Record, Diagnosis]


def one(record: Record, diagnosis: Diagnosis, run: str, address: str) -> str:
    """A run that may still be training.

    Args:
        record: What was observed so far.
        diagnosis: What was concluded from it so far.
        run: Its id.
        address: Where the bare report is.
    """
    known = content(record, diagnosis, run)
    links = [("The report as a file", address)]
    return _live("main.html.j2", f"state?id={address.partition('id=')[2]}", links, known)


def many(runs: Sequence[object], folder: str) -> str:
    """The runs of a folder, the newest first.

    Args:
        runs: Each with `id`, `started`, `finished`, `steps`, `verdict`, `cause` and `error`.
        folder: Its name.
    """
    return _live("runs.html.j2", "state", [], {"title": "Runs", "runs": runs, "folder": folder})


def two(first: Side, second: Side) -> str:
    """Two runs: what is said of each, and their curves in one picture."""
    sides = (first, second)
    span = _both([span_of(record) for _, record, _ in sides])
    curves = list(_together(first, second))
    known = {
        "title": "Two runs",
        "both": [{"id": name} for name, _, _ in sides],
        "rows": _rows(sides),
        "curves": [drawn(curve, span) for curve in curves],
        "data": {
            "first": span.first,
            "steps": span.steps,
            "pictures": {curve.name: curve.data() for curve in curves},
        },
    }
    return _live("compare.html.j2", "state", [], known)


def _live(inner: str, state: str, links: list[tuple[str, str]], known: dict[str, Any]) -> str:
    return page(
        "view.html.j2",
        scripts=_SCRIPTS,
        network=True,
        inner=inner,
        root=".",
        state=state,
        links=links,
        **known,
    )


def _both(spans: Sequence[Span]) -> Span:
    return Span(min(s.first for s in spans), max(s.last for s in spans))


def _together(first: Side, second: Side) -> list[Curve]:
    """Pictures that both runs have, with the lines of both."""
    own = {curve.name: curve for curve in main_curves(first[1])}
    found = []
    for other in main_curves(second[1]):
        if other.name in own:
            lines = [(f"A {n}", s) for n, s in own[other.name].lines[:3]]
            lines += [(f"B {n}", s) for n, s in other.lines[:3]]
            found.append(Curve(other.name, f"{other.title}: A and B", lines))
    return found


def _rows(sides: Sequence[Side]) -> list[tuple[str, list[str]]]:
    return [
        ("Verdict", [words.headline(d) for _, _, d in sides]),
        ("Cause", [words.cause(d.hypotheses[0]) if d.hypotheses else "-" for _, _, d in sides]),
        ("Where", [listing(d.hypotheses[0].where) if d.hypotheses else "-" for _, _, d in sides]),
        ("Sure", [_sure(d) for _, _, d in sides]),
        ("Command", [command_line(redact(r.facts.run.command)) for _, r, _ in sides]),
        ("Steps", [f"{r.facts.run.steps:,}" for _, r, _ in sides]),
    ]


def _sure(diagnosis: Diagnosis) -> str:
    return words.confidence(diagnosis.hypotheses[0].confidence) if diagnosis.hypotheses else "-"
