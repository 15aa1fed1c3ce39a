"""Activation health."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.detect.activations import activations
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Channel, Kind

from ..records import EVERY, Draft, classifier, series

LOOKS = 50
AT = 20


def later(before: float, after: float) -> np.ndarray:
    """Readings that change at a look."""
    values = np.full(LOOKS, before)
    values[AT:] = after
    return values


def seen(draft: Draft) -> list[tuple[str, str, str, int]]:
    """Where, from, to, step of the events."""
    found = list(activations(draft.build()))
    assert all(e.kind == EventType.ACTIVATION for e in found)
    return [(e.where, e.before, e.after, e.step) for e in found]


@pytest.mark.parametrize(
    ("module", "metric", "after", "state"),
    [
        ("act1", "act_negative_units", 1.0, "dead"),
        ("act1", "act_flat", 0.9, "saturated"),
        ("fc2", "act_constant_units", 1.0, "collapsed"),
        ("fc2", "act_rms", np.nan, "nonfinite"),
        ("fc2", "act_rms", np.inf, "nonfinite"),
        ("fc2", "act_rms", 500.0, "exploding"),
    ],
)
def test_an_activation_that_changes_for_good(
    module: str, metric: str, after: float, state: str
) -> None:
    before = 0.9 if metric == "act_rms" else 0.05
    draft = classifier().of_module(module, **{metric: later(before, after)})
    assert seen(draft) == [(module, "healthy", state, AT * EVERY)]


def test_an_activation_that_is_dead_from_the_start() -> None:
    draft = classifier().of_module("act1", act_negative_units=1.0)
    assert seen(draft) == [("act1", "unknown", "dead", 0)]


def test_a_layer_that_comes_back_to_life() -> None:
    draft = classifier().of_module("act1", act_negative_units=later(1.0, 0.05))
    assert seen(draft)[1:] == [("act1", "dead", "healthy", AT * EVERY)]


@pytest.mark.parametrize(
    "numbers",
    [
        {"act_negative_units": 0.85},
        {"act_flat": 0.45},
        {"act_constant_units": 0.98},
        {"act_rms": later(0.9, 80.0)},
    ],
    ids=["negative", "flat", "constant", "growth"],
)
def test_what_is_just_under_its_threshold_is_healthy(numbers: dict[str, float]) -> None:
    assert seen(classifier().of_module("act1", **numbers)) == []


def test_only_a_rectifier_can_be_dead() -> None:
    assert seen(classifier().of_module("fc1", act_negative_units=1.0)) == []


def test_one_sample_cannot_collapse() -> None:
    draft = classifier().of_module("fc2", act_constant_units=1.0)
    assert seen(draft) != []
    assert seen(draft.of_batch("input", size=1.0)) == []


@pytest.mark.parametrize("kind", ["Embedding", "BatchNorm1d"])
def test_modules_that_may_give_the_same_for_all_samples(kind: str) -> None:
    draft = classifier().of_module("fc2", act_constant_units=1.0).change_module("fc2", kind=kind)
    assert seen(draft) == []


def test_containers_and_modules_that_never_ran_are_not_judged() -> None:
    draft = classifier().of_module("", act_rms=np.nan).of_module("fc2", act_rms=np.nan)
    assert seen(draft.change_module("fc2", calls=0)) == []


def test_an_output_that_starts_at_zero_does_not_explode_when_it_grows() -> None:
    gate = later(0.0, 0.3)
    gate[5:AT] = np.geomspace(1e-4, 0.3, AT - 5)
    assert seen(classifier().of_module("fc2", act_rms=gate)) == []


def test_the_numbers_are_in_the_event() -> None:
    (found,) = activations(classifier().of_module("act1", act_negative_units=1.0).build())
    assert found.metadata == {
        "rms": 0.6, "negative_units": 1.0, "flat": 0.0, "constant_units": 0.05,
    }  # fmt: skip


def test_a_share_that_was_not_measured_is_neither_healthy_nor_ill() -> None:
    draft = classifier().without("act_negative_units", "act_flat", "act_constant_units")
    assert seen(draft) == []
    assert seen(draft.of_module("fc2", act_rms=later(0.9, np.nan))) == [
        ("fc2", "healthy", "nonfinite", AT * EVERY)
    ]


def test_shares_belong_to_their_step_though_other_looks_are_missing() -> None:
    draft = classifier()
    dead = np.full(AT, 1.0)
    channel = Channel(Kind.MODULE, "act1", m.ACT_NEGATIVE_UNITS)
    late = series(dead, EVERY)
    draft.channels[channel] = type(late)(late.steps + (LOOKS - AT) * EVERY, late.values)
    assert seen(draft) == [("act1", "healthy", "dead", (LOOKS - AT) * EVERY)]
