"""The way from cause to symptom as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from neuraldbg.core.diagnosis import Coupling, Diagnosis, Link
from neuraldbg.core.events import SemanticEvent
from neuraldbg.report.flow import MOST_NODES, Flow, flow, gather
from neuraldbg.report.names import plain

__all__ = ["MOST_NODES", "draw", "escape", "render"]

_LABEL: Final = 90  # characters; longer sentences are cut
_SAFE: Final = frozenset(" .,:/()+-=_*!?'")


def render(diagnosis: Diagnosis) -> str:
    """The chain of the leading hypothesis, with the couplings around it."""
    return _write(flow(diagnosis))


def draw(
    events: Sequence[SemanticEvent],
    couplings: Sequence[Coupling],
    *,
    title: str = "",
    chain: Sequence[Link] = (),
) -> str:
    """A flowchart of at most `MOST_NODES` boxes; the arguments are those of `flow.gather`."""
    return _write(gather(events, couplings, title=title, chain=chain))


def escape(text: str) -> str:
    """Text that cannot end a label or become markup: entity codes for all that is special.

    Example:
        >>> escape('</b>"')
        '#60;/b#62;#34;'
    """
    lines = (plain(line)[:_LABEL] for line in text.split("\n"))
    return "<br/>".join("".join(map(_character, line)) for line in lines)


def _character(c: str) -> str:
    return c if (c.isascii() and c.isalnum()) or c in _SAFE else f"#{ord(c)};"


def _write(drawn: Flow) -> str:
    lines = ["flowchart TD"]
    lines += [f'    n{i}["{escape(label)}"]' for i, label in enumerate(drawn.boxes)]
    if not drawn.boxes:
        lines.append('    n0["nothing to draw"]')
    for source, target, said in drawn.arrows:
        middle = f'-->|"{escape(said)}"|' if said else "-->"
        lines.append(f"    n{source} {middle} n{target}")
    return "\n".join(lines) + "\n"
