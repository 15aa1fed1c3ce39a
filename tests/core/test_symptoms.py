"""Symptoms."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.causes import all_causes
from neuraldbg.core.detect import extract
from neuraldbg.core.events import (
    ActivationHealth,
    EventType,
    GradientHealth,
    LossHealth,
    SemanticEvent,
    UpdateHealth,
)
from neuraldbg.core.symptoms import STATES, TROUBLE, Symptom, symptoms
from neuraldbg.core.view import View

from .records import EVERY, Draft, classifier


def seen(draft: Draft) -> dict[str, Symptom]:
    """The symptoms of a draft."""
    record = draft.build()
    return symptoms(View(record, extract(record)))


def test_a_healthy_run_has_none() -> None:
    assert seen(classifier()) == {}


@pytest.mark.parametrize(
    ("draft", "name"),
    [
        (classifier().of_module("fc1", grad_rms=1e-9), "vanishing"),
        (classifier().of_param("fc1.weight", grad_none=1.0), "absent"),
        (classifier().of_module("act1", act_negative_units=1.0), "dead"),
        (classifier().of_module("act1", act_flat=1.0), "saturated"),
        (classifier().of_module("fc1", act_constant_units=1.0), "collapsed"),
        (classifier().of_param("fc1.weight", update_ratio=3.0), "huge_updates"),
        (classifier().of_param("fc1.weight", update_ratio=1e-9), "tiny_updates"),
        (classifier().of_param("fc1.weight", update_ratio=0.0), "frozen"),
        (classifier().stays(), "not_learning"),
        (classifier().diverges(), "diverged"),
        (classifier().breaks(100), "nonfinite"),
    ],
)
def test_what_is_wrong_to_the_eye(draft: Draft, name: str) -> None:
    found = seen(draft)
    assert name in found
    assert found[name].name == name
    assert found[name].weight > 0
    assert found[name].text


def test_a_symptom_tells_where_and_when_it_shows_first_and_sums_up_its_events() -> None:
    late = np.full(50, 0.05)
    late[30:] = 1.0
    draft = classifier().of_module("act2", act_negative_units=1.0)
    found = seen(draft.of_module("act1", act_negative_units=late))["dead"]
    assert (found.where, found.step) == ("act2", 0)
    assert found.text == "act2 is dead from step 0 on"
    assert found.events == ("activation:act2:dead:0", f"activation:act1:dead:{30 * EVERY}")


def test_the_text_and_weight_of_each_symptom() -> None:
    """Of every state there is, seen at one place: nothing of it is lost or made up."""
    record = classifier().build()
    for (kind, after), (name, weight) in STATES.items():
        event = SemanticEvent("e", kind, "fc1", 7, "healthy", after)
        found = symptoms(View(record, (event,)))[name]
        text = f"fc1 is {after} from step 7 on"
        assert found == Symptom(name, weight, text, "fc1", 7, ("e",))


def test_of_many_events_the_first_twenty_are_named() -> None:
    many = tuple(
        SemanticEvent(str(i), EventType.ACTIVATION, "act1", i, "healthy", "dead") for i in range(25)
    )
    found = symptoms(View(classifier().build(), many))["dead"]
    assert found.events == tuple(str(i) for i in range(20))


def test_of_two_states_with_one_symptom_the_gradient_comes_first() -> None:
    """Gradients and activations both explode; the symptom is told of the one listed first."""
    both = (
        SemanticEvent("a", EventType.ACTIVATION, "act1", 1, "healthy", "exploding"),
        SemanticEvent("g", EventType.GRADIENT, "fc1", 9, "healthy", "exploding"),
    )
    assert symptoms(View(classifier().build(), both))["exploding"].events == ("g",)


def test_a_high_first_loss_says_how_high() -> None:
    found = seen(classifier().stays(40.0))["initial_loss"]
    assert found.text == "the first loss 40.1 is far above a constant guess (2.29)"
    assert (found.name, found.weight, found.where, found.step) == ("initial_loss", 0.6, "loss", 0)


def test_the_failure_of_the_run_sums_up_the_events_of_the_loss() -> None:
    draft = classifier().stays().of_module("act1", act_negative_units=1.0)
    assert seen(draft)["not_learning"].events == ("loss:loss:stalled:0",)


def test_the_failure_of_the_run_weighs_most() -> None:
    assert seen(classifier().stays(2.3))["not_learning"].weight == pytest.approx(TROUBLE, rel=0.1)
    assert max(weight for _, weight in STATES.values()) < TROUBLE


def test_a_first_loss_far_above_a_guess_is_a_symptom() -> None:
    assert "initial_loss" in seen(classifier().stays(40.0))
    assert "initial_loss" not in seen(classifier().stays(5.0))
    assert "initial_loss" not in seen(classifier().change_loss(kind="custom").stays(40.0))


def test_a_loss_that_is_maximised_has_no_high_first_loss() -> None:
    parts = classifier().losses[0].parts
    negated = tuple(type(p)(p.kind, p.reduction, -1.0, p.entries) for p in parts)
    draft = classifier().change_loss(parts=negated).loses(-np.geomspace(2.3, 1e4, 200))
    assert "initial_loss" not in seen(draft)


def test_every_state_that_counts_as_a_symptom_exists() -> None:
    states = {
        EventType.GRADIENT: GradientHealth,
        EventType.ACTIVATION: ActivationHealth,
        EventType.UPDATE: UpdateHealth,
        EventType.LOSS: LossHealth,
    }
    for kind, after in STATES:
        assert after in set(states[kind])


def test_causes_explain_symptoms_that_can_occur_and_every_symptom_has_a_cause() -> None:
    possible = {name for name, _ in STATES.values()}
    possible |= {"nonfinite", "diverged", "not_learning", "initial_loss"}
    declared = [c for c in all_causes().values() if c.weigh.__module__.startswith("neuraldbg.")]
    assert set().union(*(c.explains for c in declared)) == possible
    silent = {c.id for c in declared if not c.explains}
    assert silent <= {"train_mode_inference", "degenerate_targets", "overfitting"}
