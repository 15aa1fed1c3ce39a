"""Semantic events."""

from __future__ import annotations

import pytest

from neuraldbg.core.events import (
    ActivationHealth,
    EventType,
    GradientHealth,
    LossHealth,
    SemanticEvent,
    UpdateHealth,
)

HEALTHS = [GradientHealth, ActivationHealth, UpdateHealth, LossHealth]


def test_states_are_plain_text_where_they_are_stored() -> None:
    assert GradientHealth.VANISHING == "vanishing"
    assert f"{LossHealth.DIVERGING}" == "diverging"


@pytest.mark.parametrize("health", HEALTHS)
def test_every_kind_of_health_starts_unknown(health: type[GradientHealth]) -> None:
    assert health("unknown").value == "unknown"


def test_the_kinds_of_events_are_told_apart_by_the_first_word_of_their_names() -> None:
    words = [x.value.partition("_")[0] for x in EventType]
    assert len(set(words)) == len(words)


def test_an_event_is_certain_unless_told_otherwise_and_cannot_be_changed() -> None:
    made = SemanticEvent("e", EventType.LOSS, "loss", 3, "improving", "diverging")
    assert made.confidence == 1.0
    assert made.metadata == {}
    with pytest.raises(AttributeError):
        made.step = 4  # type: ignore[misc]
