"""The way from the cause to what the user saw: boxes and arrows, however they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from neuraldbg.core.diagnosis import CausalHypothesis, Coupling, Diagnosis, Link
from neuraldbg.core.events import SemanticEvent
from neuraldbg.report.names import family, place, plain

MOST_NODES: Final = 15


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


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Boxes in order of appearance, and the arrows between them.

    Attributes:
        boxes: The words of each box, lines parted by a line feed.
        arrows: Index of the first box, of the second, and the words on the arrow.
    """

    boxes: tuple[str, ...]
    arrows: tuple[tuple[int, int, str], ...]


def flow(diagnosis: Diagnosis) -> Flow:
    """The chain of the leading hypothesis, with the couplings around it."""
    if not diagnosis.hypotheses:
        return gather(diagnosis.events, diagnosis.couplings, title=diagnosis.verdict)
    best = diagnosis.hypotheses[0]
    return gather(diagnosis.events, diagnosis.couplings, title=_title(best), chain=best.chain)


def gather(
    events: Sequence[SemanticEvent],
    couplings: Sequence[Coupling],
    *,
    title: str = "",
    chain: Sequence[Link] = (),
) -> Flow:
    """At most `MOST_NODES` boxes.

    Args:
        events: What happened; only those in the chain or in a coupling are drawn.
        couplings: Arrows between events.
        title: Text of the first box, if any.
        chain: The way from the cause to the symptom, in order below the title.
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
    at = {key: i for i, key in enumerate(boxes)}
    drawn = tuple((at[a], at[b], said) for (a, b), said in arrows.items() if a in at and b in at)
    return Flow(tuple(boxes.values()), drawn)


def _title(best: CausalHypothesis) -> str:
    return f"{plain(best.cause)}\nconfidence {best.confidence:.2f}"


def _label(key: object) -> str:
    if isinstance(key, Node):
        return key.label
    return plain(key.text) if isinstance(key, Link) else str(key)


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
