"""Symptoms: what is wrong to the eye, before any cause. Causes say which they explain."""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuraldbg.core.events import EventType
from neuraldbg.core.view import View


@dataclass(frozen=True, slots=True)
class Symptom:
    """A symptom seen in a run.

    Attributes:
        name: `nonfinite`, `diverged`, `not_learning`, `vanishing`, ...
        weight: How much a cause gains by explaining it, in nats.
        text: In a sentence.
        where, step: The first place and step.
        events: Ids of the events it sums up.
    """

    name: str
    weight: float
    text: str
    where: str | None = None
    step: int | None = None
    events: tuple[str, ...] = ()


# Event state -> (symptom, weight). The loss counts most: it is why the user asks.
STATES: dict[tuple[EventType, str], tuple[str, float]] = {
    (EventType.GRADIENT, "vanishing"): ("vanishing", 0.4),
    (EventType.GRADIENT, "exploding"): ("exploding", 0.4),
    (EventType.GRADIENT, "absent"): ("absent", 0.4),
    (EventType.GRADIENT, "zero"): ("zero_gradient", 0.4),
    (EventType.ACTIVATION, "dead"): ("dead", 0.5),
    (EventType.ACTIVATION, "saturated"): ("saturated", 0.5),
    (EventType.ACTIVATION, "collapsed"): ("collapsed", 0.4),
    (EventType.ACTIVATION, "exploding"): ("exploding", 0.4),
    (EventType.UPDATE, "huge"): ("huge_updates", 0.5),
    (EventType.UPDATE, "tiny"): ("tiny_updates", 0.4),
    (EventType.UPDATE, "frozen"): ("frozen", 0.4),
    (EventType.LOSS, "spiking"): ("spiking", 0.2),
}
TROUBLE = 0.8
FIRST_LOSS_HIGH = 3.0


def symptoms(view: View) -> dict[str, Symptom]:
    """The symptoms of a run by name."""
    out: dict[str, Symptom] = {}
    for state, (name, weight) in STATES.items():
        found = [e for e in view.events if (e.kind, e.after) == state]
        if found:
            e = found[0]
            text = f"{e.where} is {e.after} from step {e.step} on"
            ids = tuple(x.id for x in found[:20])
            out.setdefault(name, Symptom(name, weight, text, e.where, e.step, ids))
    trouble = view.trouble
    if trouble.level > 0:
        ids = tuple(e.id for e in view.events if e.kind == EventType.LOSS)
        out[trouble.kind] = Symptom(
            trouble.kind, TROUBLE * trouble.level, trouble.text, "loss", trouble.step, ids
        )
    path = view.path
    first = path.series.values[0] if len(path.series) else math.nan
    if path.chance and first > FIRST_LOSS_HIGH * path.chance:
        text = f"the first loss {first:.3g} is far above a constant guess ({path.chance:.3g})"
        out["initial_loss"] = Symptom("initial_loss", 0.6, text, "loss", 0)
    return out
