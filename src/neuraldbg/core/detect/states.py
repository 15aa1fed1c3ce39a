"""From a series of numbers to changes of state.

A state must hold for several looks before it counts, so that one odd batch makes no
event; a non-finite value counts at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Scalar

# Looks in a row that make a state. Three independent false readings in a row at the
# detectors' design point of 2 % each happen once in 125,000 looks.
PERSIST: Final = 3


class Transition(NamedTuple):
    """A change of state: from, to, at which index of the series."""

    before: str
    after: str
    at: int


def transitions(
    states: Sequence[str], *, start: str, quiet: str, at_once: frozenset[str] = frozenset()
) -> Iterator[Transition]:
    """The lasting changes in a sequence of momentary states.

    Args:
        states: One state a look, in order of step.
        start: The state before the first look.
        quiet: The state whose first appearance is not worth an event.
        at_once: States that count from their first look.
    """
    held, candidate, since = start, start, 0
    for i, state in enumerate(states):
        if state == held:
            candidate = held
            continue
        if state != candidate:
            candidate, since = state, i
        lasting = i - since + 1 >= min(PERSIST, len(states))
        if state in at_once or lasting:
            if not (held == start and state == quiet):
                yield Transition(held, state, since)
            held = candidate = state


def event(
    kind: EventType,
    where: str,
    step: int,
    change: Transition,
    confidence: float = 1.0,
    **numbers: Scalar,
) -> SemanticEvent:
    """A semantic event with an id that is stable between diagnoses of one run."""
    name = f"{kind.value.partition('_')[0]}:{where}:{change.after}:{step}"
    return SemanticEvent(
        name, kind, where, step, change.before, change.after, confidence, dict(numbers)
    )
