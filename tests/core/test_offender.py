"""The first offender: what made a non-finite value out of finite ones."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import extract
from neuraldbg.core.engine import diagnose
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.offender import Offender, first_nonfinite, offender, unseen
from neuraldbg.core.record import Floats
from neuraldbg.core.view import View

from .records import EVERY, STEPS, Draft, classifier

LOOKS = STEPS // EVERY
STEP = 25 * EVERY


def at(step: int, value: float = 4.0) -> Floats:
    """Nothing, and from a step on a value."""
    return np.where(np.arange(LOOKS) * EVERY >= step, value, 0.0)


def view(draft: Draft, *events: SemanticEvent) -> View:
    """A run as the causes see it."""
    record = draft.build()
    return View(record, (*extract(record), *events))


def found(draft: Draft, *events: SemanticEvent) -> Offender | None:
    """The offender at the first step that is not finite."""
    seen = view(draft, *events)
    step = first_nonfinite(seen)
    assert step is not None
    return offender(seen, step)


def forward(*names: str) -> Draft:
    """All of these give NaN, and those that follow get it."""
    draft = classifier().breaks(STEP)
    for i, name in enumerate(names):
        draft.of_module(name, act_nonfinite=at(STEP))
        if name.startswith("fc"):
            draft.of_module(name, in_nonfinite=at(STEP) if i else np.zeros(LOOKS))
    return draft


def test_a_layer_with_finite_input_and_weights_is_the_offender() -> None:
    made = found(forward("fc2", "act2", "fc3"))
    assert made is not None
    assert (made.where, made.step) == (("fc2",), STEP)
    assert "from finite input" in made.text


def test_a_layer_whose_weights_are_spoilt_is_none() -> None:
    spoilt = np.where(np.arange(LOOKS) * EVERY >= STEP, np.nan, 4.0)
    assert found(forward("fc2", "act2", "fc3").of_param("fc2.weight", weight_norm=spoilt)) is None


def test_a_module_without_parameters_is_judged_by_what_ran_before_it() -> None:
    made = found(forward("act1", "fc2", "act2", "fc3"))
    assert made is not None
    assert made.where == ("act1",)


def test_the_first_module_of_all_is_judged_by_the_data() -> None:
    draft = classifier().module("norm", "Scale", before="fc1").breaks(STEP)
    draft.of_module("norm", act_nonfinite=at(STEP))
    made = found(draft.of_batch("input", nonfinite=np.zeros(LOOKS)))
    assert made is not None
    assert made.where == ("norm",)
    assert found(draft.of_batch("input", nonfinite=at(STEP))) is None


def test_code_between_two_modules_is_the_offender() -> None:
    draft = classifier().breaks(STEP).of_module("act1", act_nonfinite=np.zeros(LOOKS))
    draft.of_module("fc2", act_nonfinite=at(STEP), in_nonfinite=at(STEP))
    made = found(draft)
    assert made is not None
    assert made.where == ("fc2", "act1")
    assert "the code between act1 and fc2 makes it" in made.text


def test_a_first_layer_that_is_given_nan_only_passes_it_on() -> None:
    draft = classifier().breaks(STEP)
    assert found(draft.of_module("fc1", act_nonfinite=at(STEP), in_nonfinite=at(STEP))) is None


def backward(*bad: str, loss: bool = False) -> Draft:
    """The gradient at these is not finite, and the forward pass is; the loss follows later."""
    draft = classifier() if loss else classifier().breaks(STEP + 1)
    draft.of_module("*", act_nonfinite=np.zeros(LOOKS), grad_nonfinite=np.zeros(LOOKS))
    for name in bad:
        rms = np.where(np.arange(LOOKS) * EVERY >= STEP, np.nan, 2e-3)
        draft.of_module(name, grad_nonfinite=at(STEP), grad_rms=rms)
    return draft.of_module("fc*", grad_absmax=0.02).of_module("act*", grad_absmax=0.02)


def test_backward_it_lies_between_a_finite_and_a_non_finite_gradient() -> None:
    made = found(backward("fc1", "act1"))
    assert made is not None
    assert (made.where, made.step) == (("act1",), STEP)
    assert "finite at the output of fc2 and not at that of act1" in made.text


def test_backward_a_module_of_the_users_own_is_suspected_itself() -> None:
    draft = backward("fc1", "act1")
    made = found(draft.change_module("fc2", kind="Angle"))
    assert made is not None
    assert made.where == ("fc2", "act1")


def test_backward_an_operation_of_the_loss_may_have_the_infinite_slope() -> None:
    made = found(backward("fc1", "act1", "fc2", "act2", "fc3"))
    assert made is not None
    assert "between fc3 and the loss has an infinite slope" in made.text


def test_a_gradient_that_explodes_is_no_single_operations_doing() -> None:
    assert found(backward("fc1", "act1").of_module("*", grad_absmax=1e20)) is None


def test_a_scaler_that_tries_too_large_a_scale_is_no_offender() -> None:
    draft = backward("fc1", "act1")
    assert found(draft.notes(**{m.N_SCALER: True})) is None


def test_what_fell_between_two_looks_is_not_seen() -> None:
    assert unseen(view(classifier().breaks(STEP + 2))) == STEP + 2
    assert unseen(view(classifier())) is None


def test_what_was_seen_is_not_missed() -> None:
    assert unseen(view(forward("fc2", "act2", "fc3"))) is None


@pytest.mark.parametrize("where", [("act1", "fc1"), ()])
def test_what_a_repetition_showed_is_evidence(where: tuple[str, ...]) -> None:
    event = Offender(where, STEP + 2, "act1 gives a non-finite value", 3.0).event()
    draft = classifier().breaks(STEP + 2)
    made = found(draft, event)
    assert made == Offender(
        where[:1], STEP + 2, "act1 gives a non-finite value (in a repetition)", 3
    )
    best = diagnose(draft.build(), [event]).hypotheses[0]
    assert best.cause == "nonfinite_operation"
    assert best.where[:1] == (where[:1] or ("fc3",))
    assert best.first_step == STEP + 2


def test_a_guess_at_what_was_missed_says_how_to_see_it() -> None:
    best = diagnose(classifier().breaks(STEP + 2).build()).hypotheses[0]
    assert best.cause == "nonfinite_operation"
    assert f"at step {STEP + 2} fell between two looks" in best.summary
    assert "neuraldbg verify" in best.summary


def broken_loss(size: float) -> Draft:
    """Every output is finite, the loss of the step is not, nor what it sends back."""
    draft = backward("fc1", "act1", "fc2", "act2", "fc3").breaks(STEP)
    return draft.of_module("fc3", act_absmax=size)


def test_a_loss_that_is_not_finite_with_outputs_of_usual_size_is_made_by_its_own_code() -> None:
    made = found(broken_loss(3.0))
    assert made is not None
    assert made.where == ("fc3",)
    assert "what is computed between fc3 and the loss makes it" in made.text


def test_outputs_that_have_exploded_break_any_loss() -> None:
    assert found(broken_loss(1e4)) is None


def test_targets_that_are_not_finite_break_it_as_well() -> None:
    assert found(broken_loss(3.0).of_batch("target", nonfinite=at(STEP))) is None


def test_a_batch_far_beyond_the_others_breaks_it_as_well() -> None:
    sizes = np.where(np.arange(LOOKS) * EVERY == STEP, 900.0, 3.0)
    assert found(broken_loss(3.0).of_batch("input", absmax=sizes)) is None
