"""The way from cause to symptom as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from neuraldbg.core.diagnosis import CausalHypothesis, Coupling, Diagnosis, Link
from neuraldbg.core.events import SemanticEvent
from neuraldbg.report.names import family, place, plain

MOST_NODES: Final = 15
_LABEL: Final = 90  # characters; longer sentences are cut
_SAFE: Final = frozenset(" .,:/()+-=_*!?'")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One box: the events it stands for, all of the same change."""

    events: tuple[SemanticEvent, ...]

    @property
    def label(self) -> str:
        """Where it happened, what changed, and when."""
        first, last = self.events[0], self.events[-1]
        where = place(first.where)
        if len(self.events) > 1:
            where = f"{where} ... {place(last.where)}"
        steps = sorted({e.step for e in self.events})
        when = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
        kind = first.kind.value.split("_")[0]
        return f"{where}\n{kind}: {first.before} to {first.after}\n{when}"


def render(diagnosis: Diagnosis) -> str:
    """The chain of the leading hypothesis, with the couplings around it."""
    if not diagnosis.hypotheses:
        return draw(diagnosis.events, diagnosis.couplings, title=diagnosis.verdict)
    best = diagnosis.hypotheses[0]
    return draw(diagnosis.events, diagnosis.couplings, title=_title(best), chain=best.chain)


def draw(
    events: Sequence[SemanticEvent],
    couplings: Sequence[Coupling],
    *,
    title: str = "",
    chain: Sequence[Link] = (),
) -> str:
    """A flowchart of at most `MOST_NODES` boxes.

    Args:
        events: What happened; only those in the chain or in a coupling are drawn.
        couplings: Arrows between events.
        title: Text of the first box, if any.
        chain: The way from the cause to the symptom, drawn in order below the title.
    """
    nodes = _group(events)
    of = {e.id: node for node in nodes for e in node.events}
    boxes: dict[object, str] = {}
    arrows: dict[tuple[object, object], str] = {}
    steps: list[object] = [title] if title else []
    for link in chain:
        steps.append(of.get(link.event, link) if link.event else link)
    boxes.update((key, _label(key)) for key in list(dict.fromkeys(steps))[:MOST_NODES])
    arrows.update(((a, b), "") for a, b in pairwise(steps) if a != b)
    for coupling in couplings:
        source, target = of.get(coupling.source), of.get(coupling.target)
        if source is None or target is None or source is target:
            continue
        if len({*boxes, source, target}) > MOST_NODES:
            continue
        boxes.setdefault(source, source.label)
        boxes.setdefault(target, target.label)
        arrows[source, target] = arrows.get((source, target)) or plain(coupling.mechanism)
    return _write(boxes, arrows)


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


def _title(best: CausalHypothesis) -> str:
    return f"{plain(best.cause)}\nconfidence {best.confidence:.2f}"


def _label(key: object) -> str:
    if isinstance(key, Node):
        return key.label
    return plain(key.text) if isinstance(key, Link) else str(key)


def _write(boxes: dict[object, str], arrows: dict[tuple[object, object], str]) -> str:
    ids = {key: f"n{i}" for i, key in enumerate(boxes)}
    lines = ["flowchart TD"]
    lines += [f'    {ids[key]}["{escape(label)}"]' for key, label in boxes.items()]
    if not boxes:
        lines.append('    n0["nothing to draw"]')
    for (source, target), label in arrows.items():
        if source in ids and target in ids:
            middle = f'-->|"{escape(label)}"|' if label else "-->"
            lines.append(f"    {ids[source]} {middle} {ids[target]}")
    return "\n".join(lines) + "\n"


def _group(events: Sequence[SemanticEvent]) -> list[Node]:
    """Equal changes in neighbouring layers become one node."""
    families: dict[object, list[tuple[int, SemanticEvent]]] = {}
    for event in events:
        key, number = family(event.where)
        change = (event.kind, event.before, event.after, key)
        families.setdefault(change, []).append((number, event))
    nodes: list[Node] = []
    for members in families.values():
        members.sort(key=lambda m: (m[0], m[1].step))
        nodes += _runs(members)
    return nodes


def _runs(members: list[tuple[int, SemanticEvent]]) -> list[Node]:
    nodes: list[Node] = []
    start = 0
    for i in range(1, len(members) + 1):
        if i == len(members) or members[i][0] != members[i - 1][0] + 1:
            nodes.append(Node(tuple(event for _, event in members[start:i])))
            start = i
    return nodes
