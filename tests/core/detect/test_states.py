"""From a series of states to lasting changes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.detect.states import PERSIST, Transition, event, transitions
from neuraldbg.core.events import EventType

STATES = ["u", "h", "v", "n"]


def changes(states: str, at_once: str = "n") -> list[tuple[str, str, int]]:
    """The lasting changes of a word, one letter a state: u(nknown), h(ealthy), v, n(ot finite)."""
    found = transitions(list(states), start="u", quiet="h", at_once=frozenset(at_once))
    return [tuple(x) for x in found]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("", []),
        ("h", []),
        ("hhhhhh", []),
        ("hhhvvv", [("h", "v", 3)]),
        ("hhhvvh", []),
        ("hhhvhvhvhv", []),
        ("hhhvvhvvv", [("h", "v", 6)]),
        ("hhhvvvhhh", [("h", "v", 3), ("v", "h", 6)]),
        ("vvvhhh", [("u", "v", 0), ("v", "h", 3)]),
        ("hhhn", [("h", "n", 3)]),
        ("nhhh", [("u", "n", 0), ("n", "h", 1)]),
        ("hhhnnnn", [("h", "n", 3)]),
        ("hhhnvvv", [("h", "n", 3), ("n", "v", 4)]),
        ("v", [("u", "v", 0)]),
        ("vv", [("u", "v", 0)]),
        ("hv", []),
        ("hvvnvvv", [("u", "n", 3), ("n", "v", 4)]),
    ],
)
def test_changes_that_last(states: str, expected: list[tuple[str, str, int]]) -> None:
    assert changes(states) == expected


def test_a_change_is_dated_by_its_first_look() -> None:
    assert changes("h" * 10 + "v" * PERSIST) == [("h", "v", 10)]


def test_one_look_less_than_needed_is_no_change() -> None:
    assert changes("h" * 10 + "v" * (PERSIST - 1)) == []


def test_a_state_that_counts_at_once_needs_no_second_look() -> None:
    assert changes("hhhvhh", at_once="v") == [("h", "v", 3)]


def test_in_a_run_of_few_looks_all_of_them_must_agree() -> None:
    assert changes("vv") == [("u", "v", 0)]
    assert changes("vh") == []


@given(st.lists(st.sampled_from(STATES), max_size=40))
def test_changes_form_a_chain_that_starts_unknown(states: list[str]) -> None:
    found = list(transitions(states, start="u", quiet="h", at_once=frozenset("n")))
    for change in found:
        assert states[change.at] == change.after
        assert change.before != change.after
    for one, two in pairwise(found):
        assert one.at < two.at
        assert one.after == two.before or (two.before, one.after) == ("h", "u")
    if found:
        assert found[0].before in ("u", "h")


@given(st.lists(st.sampled_from(STATES), max_size=30))
def test_every_change_lasts_or_counts_at_once(states: list[str]) -> None:
    for change in transitions(states, start="u", quiet="h", at_once=frozenset("n")):
        held = states[change.at : change.at + min(PERSIST, len(states))]
        assert change.after == "n" or held == [change.after] * min(PERSIST, len(states))


def test_an_event_carries_its_numbers_and_a_name_of_its_own() -> None:
    made = event(EventType.GRADIENT, "fc1", 7, Transition("healthy", "zero", 3), 0.5, rms=0.0)
    assert (made.before, made.after, made.step, made.where) == ("healthy", "zero", 7, "fc1")
    assert made.confidence == 0.5
    assert made.metadata == {"rms": 0.0}
    other = event(EventType.ACTIVATION, "fc1", 7, Transition("healthy", "zero", 3), 0.5, rms=0.0)
    assert made.id != other.id
