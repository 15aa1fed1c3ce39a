"""The diagnosis as Markdown, for a pull request or the summary of a build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.report import mermaid, words
from neuraldbg.report.names import listing, plain
from neuraldbg.report.text import gaps

_SPECIAL: Final = frozenset("\\`*_{}[]()#+-!|~<>&@$:")
_MARK: Final = {"healthy": "✅", "suspect": "⚠️", "failed": "❌"}


def render(diagnosis: Diagnosis) -> str:
    """The report: the verdict in one line, then each likely fault with why."""
    ranked = diagnosis.hypotheses
    faults = [h for h in ranked if h.confidence >= words.LIKELY] or list(ranked[:1])
    lines = [f"### {_MARK.get(diagnosis.verdict, '')} {escape(words.headline(diagnosis))}", ""]
    for fault in faults:
        lines += _fault(fault)
    lines += _folded("What else it could be", _rivals(h for h in ranked if h not in faults))
    if ranked and ranked[0].chain:
        lines += ["```mermaid", mermaid.render(diagnosis).rstrip(), "```", ""]
    lines += _folded("What could not be seen", gaps(diagnosis.gaps))
    if diagnosis.facts.run.steps:
        cost = diagnosis.overhead
        lines += [f"<sub>{escape(words.cost(cost.ratio, cost.seconds))}</sub>", ""]
    return "\n".join(lines).rstrip() + "\n"


def escape(text: object) -> str:
    """One line in which Markdown and HTML see no markup, and nobody is mentioned.

    Example:
        >>> escape("a_b <b> @you")
        'a&#95;b &#60;b&#62; &#64;you'
    """
    return "".join(f"&#{ord(c)};" if c in _SPECIAL - _HARMLESS else c for c in plain(text))


_HARMLESS: Final = frozenset("+-():")  # within a line; no line of ours begins with such text


def _fault(fault: CausalHypothesis) -> Iterator[str]:
    yield from (f"**{escape(words.cause(fault))}**", "", "| | |", "|---|---|")
    yield f"| Where | {escape(listing(fault.where) or 'the whole run')} |"
    if fault.first_step is not None:
        yield f"| Since | step {fault.first_step} |"
    yield f"| Sure | {escape(words.confidence(fault.confidence))} |"
    if fault.experiment:
        yield f"| Tested | {escape(words.experiment(fault.experiment))} |"
    if fault.repair:
        yield f"| To change | {escape(fault.repair)} |"
    yield ""
    strongest = sorted(fault.evidence, key=lambda e: -e.weight)
    yield from _folded("Why", map(words.evidence, strongest))
    yield from _folded("Against", map(words.evidence, fault.against))


def _rivals(rivals: Iterable[CausalHypothesis]) -> list[str]:
    return [f"{h.confidence:.2f} {words.cause(h)}" for h in rivals]


def _folded(heading: str, items: Iterable[str]) -> list[str]:
    entries = [f"- {escape(item)}" for item in items]
    if not entries:
        return []
    return [f"<details><summary>{heading}</summary>", "", *entries, "", "</details>", ""]
