"""Gradient health."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.detect.gradients import gradient_state, gradients, surely_healthy
from neuraldbg.core.events import EventType, GradientHealth

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
    found = list(gradients(draft.build()))
    assert all(e.kind == EventType.GRADIENT for e in found)
    return [(e.where, e.before, e.after, e.step) for e in found]


@pytest.mark.parametrize(
    ("after", "state"),
    [(1e-7, "vanishing"), (0.0, "zero"), (np.nan, "nonfinite"), (np.inf, "nonfinite")],
)
def test_a_gradient_that_changes_for_good(after: float, state: str) -> None:
    draft = classifier().of_module("fc1", grad_rms=later(2e-3, after))
    assert seen(draft) == [("fc1", "healthy", state, AT * EVERY)]


def test_a_gradient_that_explodes_for_some_looks() -> None:
    values = np.full(LOOKS, 2e-3)
    values[AT : AT + 4] = 50.0
    draft = classifier().of_module("*", grad_rms=values)
    assert ("fc1", "healthy", "exploding", AT * EVERY) in seen(draft)


def test_a_gradient_that_vanishes_from_the_start() -> None:
    draft = classifier().of_module("fc1", grad_rms=1e-8)
    assert seen(draft) == [("fc1", "unknown", "vanishing", 0)]


def test_a_healthy_gradient_is_no_event() -> None:
    assert seen(classifier()) == []


def test_small_gradients_everywhere_are_the_scale_of_the_loss_not_vanishing() -> None:
    assert seen(classifier().of_module("*", grad_rms=1e-8)) == []


def test_gradients_lost_in_every_rounding_have_vanished() -> None:
    assert len(seen(classifier().of_module("*", grad_rms=1e-12))) == 5


def test_a_ratio_just_above_the_threshold_is_healthy() -> None:
    assert seen(classifier().of_module("fc1", grad_rms=2.1e-6)) == []


def test_single_odd_batches_are_no_event() -> None:
    odd = np.full(LOOKS, 2e-3)
    odd[10::10] = 1e-9
    assert seen(classifier().of_module("fc1", grad_rms=odd)) == []


def test_containers_are_not_judged() -> None:
    draft = classifier().of_module("", grad_rms=1e-9)
    assert seen(draft) == []


def test_the_scale_at_that_step_is_in_the_event() -> None:
    (found,) = gradients(classifier().of_module("fc1", grad_rms=1e-8).build())
    assert found.metadata == {"rms": 1e-8, "largest": 2e-3}


def test_a_non_finite_gradient_is_no_scale_for_others() -> None:
    draft = classifier().of_module("fc3", grad_rms=later(2e-3, np.inf))
    assert seen(draft) == [("fc3", "healthy", "nonfinite", AT * EVERY)]


def test_a_parameter_that_never_gets_a_gradient() -> None:
    draft = classifier().of_param("fc1.weight", grad_none=1.0)
    assert seen(draft) == [("fc1.weight", "unknown", "absent", 0)]


def test_a_parameter_that_gets_one_now_and_then_or_wants_none() -> None:
    assert seen(classifier().of_param("fc1.weight", grad_none=later(1.0, 0.0))) == []
    draft = classifier().of_param("fc1.weight", grad_none=1.0)
    assert seen(draft.change_param("fc1.weight", requires_grad=False)) == []


def test_growth_counts_only_against_a_baseline() -> None:
    values = [1e-3, 1e-3, 1.0, 1e-3, 1e-3, 1.0]
    states = [gradient_state(values, i, 1.0) for i in range(6)]
    assert states[2] == GradientHealth.HEALTHY
    assert states[5] == GradientHealth.EXPLODING


GRADIENTS = st.lists(
    st.one_of(
        st.floats(min_value=0.0),
        st.sampled_from([np.nan, np.inf, 0.0, 1e-10, 1e-3, 1.0, 100.0]),
        st.floats(min_value=1e-3, max_value=1.0),
    ),
    min_size=1,
    max_size=40,
)


@given(values=GRADIENTS, largest=st.floats(min_value=0.0, max_value=1e300))
def test_what_is_surely_healthy_is_healthy(values: list[float], largest: float) -> None:
    found = surely_healthy(np.array(values), np.full(len(values), largest))
    for i, sure in enumerate(found):
        if sure:
            assert gradient_state(values, i, largest) == GradientHealth.HEALTHY


def test_the_usual_case_is_surely_healthy() -> None:
    assert all(surely_healthy(np.linspace(0.01, 0.9, 50), np.ones(50)))
