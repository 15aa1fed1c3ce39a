"""The causal graph: how one event leads to another, through the model and through time.

Edges follow mechanisms, not the clock: forward along the order of execution (activations),
backward against it (gradients), from a gradient to the update of its weights, from an
update to the next loss. An edge counts only when the numbers on both sides agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neuraldbg.core.diagnosis import Coupling, Diagnosis, Link
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.view import View

if TYPE_CHECKING:
    from neuraldbg.core.infer import Scored

SPAN = 10  # steps between a cause and its effect at most, where time matters
MOST = 40  # couplings reported


def chain_of(view: View, scored: Scored) -> list[Link]:
    """From a cause to the symptoms it explains: mechanism first, then what was seen."""
    links = [Link(text) for text in scored.cause.chain]
    for symptom in sorted(scored.explained, key=lambda s: (s.step or 0, s.name)):
        event = symptom.events[0] if symptom.events else None
        links.append(Link(symptom.text, event))
    return links


def couplings(view: View) -> Iterator[Coupling]:
    """Pairs of events joined by a mechanism whose numbers agree, the best first."""
    order = {x.name: x.order for x in view.facts.modules if x.order is not None}
    found = [
        c
        for a in view.events
        for b in view.events
        if a.id != b.id and (c := _couple(a, b, order)) is not None
    ] if len(view.events) <= 400 else []  # fmt: skip
    yield from sorted(found, key=lambda c: (-c.agreement, c.source, c.target))[:MOST]


def _couple(a: SemanticEvent, b: SemanticEvent, order: dict[str, int]) -> Coupling | None:
    if not 0 <= b.step - a.step <= SPAN:
        return None
    for mechanism in (_spreads, _blocks, _starves, _reaches_loss):
        found = mechanism(a, b, order)
        if found is not None:
            name, agreement, text = found
            return Coupling(a.id, b.id, name, agreement, text)
    return None


Found = tuple[str, float, str] | None


def _spreads(a: SemanticEvent, b: SemanticEvent, order: dict[str, int]) -> Found:
    """A non-finite activation reaches later modules; a non-finite gradient, earlier ones."""
    if a.after != "nonfinite" or b.after != "nonfinite" or a.kind != b.kind:
        return None
    first, second = order.get(a.where), order.get(b.where)
    if first is None or second is None:
        return None
    forward = a.kind == EventType.ACTIVATION
    near = second - first if forward else first - second
    if near != 1:
        return None
    return "spreads", 1.0, f"the non-finite value of {a.where} reaches {b.where}"


def _blocks(a: SemanticEvent, b: SemanticEvent, order: dict[str, int]) -> Found:
    """A dead or saturated module passes no gradient to the module before it."""
    if a.kind != EventType.ACTIVATION or a.after not in ("dead", "saturated", "collapsed"):
        return None
    if b.kind != EventType.GRADIENT or b.after not in ("vanishing", "zero"):
        return None
    first, second = order.get(a.where), order.get(b.where)
    if first is None or second is None or not 0 <= first - second <= 2:
        return None
    share = _share(a, "negative_units", "flat", "constant_units")
    return "blocks", share, f"{a.where} is {a.after} ({share:.0%}), so {b.where} gets no gradient"


def _starves(a: SemanticEvent, b: SemanticEvent, order: dict[str, int]) -> Found:
    """Without a gradient a weight does not move."""
    if a.kind != EventType.GRADIENT or a.after not in ("zero", "absent", "vanishing"):
        return None
    if b.kind != EventType.UPDATE or b.after not in ("frozen", "tiny"):
        return None
    if b.where.rpartition(".")[0] != a.where and b.where != a.where:
        return None
    return "starves", 1.0, f"no gradient at {a.where}, so {b.where} does not move"


def _reaches_loss(a: SemanticEvent, b: SemanticEvent, order: dict[str, int]) -> Found:
    """A non-finite activation or a huge update shows in the loss."""
    if b.kind != EventType.LOSS:
        return None
    if a.after == "nonfinite" and b.after == "nonfinite" and a.kind == EventType.ACTIVATION:
        return "reaches the loss", 1.0, f"the non-finite value of {a.where} reaches the loss"
    if a.kind == EventType.UPDATE and a.after == "huge" and b.after in ("diverging", "spiking"):
        ratio = _share(a, "ratio")
        return "overshoots", ratio, f"updates of {a.where} ({ratio:.2g} of it) make the loss jump"
    return None


def _share(event: SemanticEvent, *names: str) -> float:
    """The largest of an event's numbers, at most 1; 0 where none is known."""
    numbers = [x for n in names if isinstance(x := event.metadata.get(n), (int, float))]
    return min(max((x for x in numbers if x > 0), default=0.0), 1.0)


def trace(diagnosis: Diagnosis, event: str) -> list[Link]:
    """The way from a root cause to an event.

    Walks the couplings back to an event that no other explains, then puts the mechanism of
    the first hypothesis that explains it in front.
    """
    by_id = {e.id: e for e in diagnosis.events}
    if event not in by_id:
        return []
    path, seen = [event], {event}
    while True:
        back = next(
            (
                c.source
                for c in diagnosis.couplings
                if c.target == path[-1] and c.source not in seen
            ),
            None,
        )
        if back is None:
            break
        path.append(back)
        seen.add(back)
    links = [Link(_say(by_id[i]), i) for i in reversed(path) if i in by_id]
    for hypothesis in diagnosis.hypotheses:
        if any(link.event in seen for link in hypothesis.chain):
            head = [link for link in hypothesis.chain if link.event is None]
            return [Link(hypothesis.summary), *head, *links]
    return links


def _say(event: SemanticEvent) -> str:
    return f"{event.where} becomes {event.after} at step {event.step}"
