"""Update health."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.detect.updates import updates
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Channel, Kind

from ..records import EVERY, Draft, classifier

LOOKS = 50
AT = 20


def later(before: float, after: float) -> np.ndarray:
    """Readings that change at a look."""
    values = np.full(LOOKS, before)
    values[AT:] = after
    return values


def seen(draft: Draft) -> list[tuple[str, str, str, int]]:
    """Where, from, to, step of the events."""
    found = list(updates(draft.build()))
    assert all(e.kind == EventType.UPDATE for e in found)
    return [(e.where, e.before, e.after, e.step) for e in found]


@pytest.mark.parametrize(("ratio", "state"), [(0.0, "frozen"), (1e-8, "tiny"), (2.0, "huge")])
def test_updates_that_change_for_good(ratio: float, state: str) -> None:
    draft = classifier().of_param("fc1.weight", update_ratio=later(3e-3, ratio))
    assert seen(draft) == [("fc1.weight", "healthy", state, AT * EVERY)]


@pytest.mark.parametrize("ratio", [1e-5, 3e-3, 0.2])
def test_updates_of_a_usual_size_are_healthy(ratio: float) -> None:
    assert seen(classifier().of_param("*", update_ratio=ratio)) == []


def test_weights_whose_every_entry_stands_still_are_frozen() -> None:
    draft = classifier().of_param("fc1.weight", still=later(0.0, 1.0))
    assert seen(draft) == [("fc1.weight", "healthy", "frozen", AT * EVERY)]


def test_a_share_of_still_entries_is_not_frozen() -> None:
    assert seen(classifier().of_param("fc1.weight", still=0.99)) == []


def test_stillness_belongs_to_its_step_though_other_looks_are_missing() -> None:
    draft = classifier().of_param("fc1.weight", still=later(0.0, 1.0))
    channel = Channel(Kind.PARAM, "fc1.weight", m.P_STILL)
    whole = draft.channels[channel]
    draft.channels[channel] = whole.between(5 * EVERY, LOOKS * EVERY)
    assert seen(draft) == [("fc1.weight", "healthy", "frozen", AT * EVERY)]


def test_biases_and_weights_of_zero_have_no_ratio() -> None:
    draft = classifier().of_param("*.bias", update_ratio=5.0)
    draft.of_param("fc1.weight", update_ratio=5.0).change_param("fc1.weight", init_rms=0.0)
    assert seen(draft) == []


def test_the_ratio_is_in_the_event() -> None:
    (found,) = updates(classifier().of_param("fc1.weight", update_ratio=2.0).build())
    assert found.metadata == {"ratio": 2.0}


def test_a_parameter_without_readings_is_not_judged() -> None:
    assert seen(classifier().without("update_ratio")) == []


def test_a_ratio_that_is_not_finite_says_nothing() -> None:
    assert seen(classifier().of_param("fc1.weight", update_ratio=np.nan)) == []
