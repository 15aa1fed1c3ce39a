"""The diagnosis as an HTML fragment for notebooks: no script, nothing loaded."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.core.record import Record
from neuraldbg.report import panel, words
from neuraldbg.report.charts import alone, causal
from neuraldbg.report.flow import flow
from neuraldbg.report.names import listing, plain
from neuraldbg.report.text import gaps

_EDGE = {"healthy": "#2e7d32", "suspect": "#b26a00", "failed": "#c62828"}


def fragment(diagnosis: Diagnosis) -> str:
    """The report as one `div`; every name and sentence is escaped."""
    edge = _EDGE.get(diagnosis.verdict, "#666")
    parts = [f"<p><strong>{_text(words.headline(diagnosis))}</strong></p>"]
    parts += [_hypothesis(h, first=i == 0) for i, h in enumerate(diagnosis.hypotheses)]
    if diagnosis.hypotheses:
        parts.append(_graph(diagnosis))
    parts.append(_details("What could not be seen", gaps(diagnosis.gaps)))
    if diagnosis.facts.run.steps:
        cost = words.cost(diagnosis.overhead.ratio, diagnosis.overhead.seconds)
        parts.append(f"<p><small>{_text(cost)}</small></p>")
    style = f"border-left:4px solid {edge};padding:0 1em;max-width:50em"
    return f'<div style="{style}">{"".join(parts)}</div>'


def watched(record: Record, diagnosis: Diagnosis) -> str:
    """A run while it trains: what was observed last, and the report so far."""
    lines = "\n".join(escape(line) for line in panel.observed(record, diagnosis.events))
    return f'<pre style="line-height:1.3">{lines}</pre>{fragment(diagnosis)}'


def sentence(text: str) -> str:
    """A notice in place of a report."""
    return f"<p>{_text(text)}</p>"


def _graph(diagnosis: Diagnosis) -> str:
    """The causal graph as an image: its style stays inside, and its words are in `alt`."""
    drawn = flow(diagnosis)
    svg = alone.svg(causal.draw(drawn)).encode("utf-8")
    source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")
    image = f'<img src="{source}" alt="{_text(causal.describe(drawn))}">'
    return f"<details><summary>Causal graph</summary>{image}</details>"


def _hypothesis(found: CausalHypothesis, *, first: bool) -> str:
    since = "" if found.first_step is None else f", since step {found.first_step}"
    where = listing(found.where) or "the whole run"
    facts = f"{where}{since}; {words.confidence(found.confidence)}"
    parts = [f"<p><b>{_text(words.cause(found))}</b><br>{_text(facts)}</p>"]
    if found.repair:
        parts.append(f"<p>To change: {_text(found.repair)}</p>")
    if found.experiment:
        parts.append(f"<p>Tested: {_text(words.experiment(found.experiment))}</p>")
    strongest = sorted(found.evidence, key=lambda e: -e.weight)
    parts.append(_details("Why", map(words.evidence, strongest), opened=first))
    parts.append(_details("Against", map(words.evidence, found.against)))
    parts.append(_details("How it led there", (link.text for link in found.chain)))
    return "".join(parts)


def _details(heading: str, items: Iterable[str], *, opened: bool = False) -> str:
    entries = "".join(f"<li>{_text(item)}</li>" for item in items)
    if not entries:
        return ""
    state = " open" if opened else ""
    return f"<details{state}><summary>{_text(heading)}</summary><ul>{entries}</ul></details>"


def _text(text: str) -> str:
    return escape(plain(text), quote=True)
