"""The training loop: zero_grad, step, what the optimizer holds, what is cut off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.causes.loop import listed, modules_of
from neuraldbg.core.facts import Kind, ParamFact

from ..records import EVERY, STEPS, Draft, classifier
from .blame import accused, blamed, confidence, convict, texts

LOOKS = 50


def never_stepped() -> Draft:
    """Backward passes without any optimizer step: nothing moves."""
    draft = classifier().notes(optimizer_steps=0).stays()
    draft.of_param("*", still=1.0, update_ratio=0.0, update_norm=0.0)
    return draft.change_optimizer("SGD", lr=0.05)


def not_held(pattern: str) -> Draft:
    """Parameters that get gradients and that no optimizer holds."""
    draft = classifier().stays().change_param(pattern, optimizer=None, group=None)
    return draft.without_series(pattern)


# -- zero_grad -----------------------------------------------------------------------------


def test_gradients_left_over_before_each_backward_were_never_zeroed() -> None:
    draft = classifier().stays().of_optimizer("0", grad_carried=2.0)
    best = convict(draft, "missing_zero_grad")
    assert "in 50 of 50 looks" in texts(best)


def test_it_is_reported_even_where_the_run_learns() -> None:
    convict(classifier().of_optimizer("0", grad_carried=2.0), "missing_zero_grad")


def test_the_onset_is_the_first_look_with_a_reading() -> None:
    carried = np.full(LOOKS, 2.0)
    carried[0] = np.nan
    draft = classifier().stays().of_optimizer("0", grad_carried=carried)
    convict(draft, "missing_zero_grad", step=EVERY)


def test_growth_of_what_is_left_over_is_evidence() -> None:
    draft = classifier().stays().of_optimizer("0", grad_carried=np.linspace(1, 40, LOOKS))
    assert "they grew 40-fold" in texts(blamed(draft))


def test_the_second_optimizer_is_named() -> None:
    draft = classifier().optimizer("SGD", lr=0.1).of_optimizer("1", grad_carried=2.0)
    assert "Optimizer 1" in convict(draft, "missing_zero_grad").summary


def test_gradients_left_over_now_and_then_are_accumulation() -> None:
    sometimes = np.where(np.arange(LOOKS) % 4 == 0, 0.0, 2.0)
    assert accused(classifier().of_optimizer("0", grad_carried=sometimes)) == []


def test_a_single_look_proves_nothing() -> None:
    once = np.full(LOOKS, np.nan)
    once[0] = 2.0
    assert accused(classifier().of_optimizer("0", grad_carried=once)) == []


def test_without_left_over_gradients_a_divergence_is_the_rates() -> None:
    draft = classifier().change_optimizer("SGD", lr=5.0).of_param("*.weight", update_ratio=0.9)
    assert accused(draft.diverges())[0] == "lr_too_high"


def idle(draft: Draft, pattern: str = "fc3*") -> Draft:
    """A second optimizer that holds some parameters, and never steps."""
    draft.optimizers.append(replace(draft.optimizers[0], index=1, steps=0))
    return draft.change_param(pattern, optimizer=1).without_series(pattern)


def test_an_optimizer_that_never_steps_beside_one_that_does_is_missing_it() -> None:
    best = convict(idle(classifier().stays()), "missing_optimizer_step", where="fc3")
    assert "never steps, while another steps 200 times" in texts(best)


def test_an_optimizer_whose_parameters_move_all_the_same_is_wrapped() -> None:
    draft = idle(classifier()).of_param("fc3.*", update_norm=1e-3)
    assert "missing_optimizer_step" not in accused(draft)


def test_an_optimizer_for_parameters_that_get_no_gradient_waits() -> None:
    draft = idle(classifier()).of_module("fc3", grad_rms=0.0)
    assert "missing_optimizer_step" not in accused(draft)


# -- step ----------------------------------------------------------------------------------


def test_backward_without_any_step_is_a_missing_step() -> None:
    best = convict(never_stepped(), "missing_optimizer_step")
    assert f"{STEPS} backward passes" in texts(best)
    assert "bit for bit" in texts(best)


def test_a_scaler_that_skipped_every_step_still_counts_as_no_step() -> None:
    convict(never_stepped().notes(scaler="GradScaler"), "missing_optimizer_step")


def test_it_needs_no_update_readings() -> None:
    draft = never_stepped().without("still", "update_ratio")
    assert "bit for bit" not in texts(convict(draft, "missing_optimizer_step"))


def test_weights_that_move_without_an_optimizer_are_updated_by_hand() -> None:
    assert accused(classifier().notes(optimizer_steps=0)) == []


def test_one_step_is_enough_to_acquit() -> None:
    assert "missing_optimizer_step" not in accused(never_stepped().notes(optimizer_steps=1))


def test_two_backwards_are_too_few_to_tell() -> None:
    assert "missing_optimizer_step" not in accused(never_stepped().notes(backwards=2))


def test_where_the_optimizer_steps_on_other_parameters_it_is_not_a_missing_step() -> None:
    assert blamed(not_held("*")).cause == "params_not_optimized"
    assert blamed(never_stepped()).cause == "missing_optimizer_step"


# -- what the optimizer holds -----------------------------------------------------------------


def test_parameters_with_gradients_and_no_optimizer_are_named() -> None:
    best = convict(not_held("fc[12].*"), "params_not_optimized", where="fc1")
    assert "4 parameters" in texts(best)
    assert set(best.where) == {"fc1", "fc2"}


def test_all_parameters_outside_the_optimizer_weigh_more_than_some() -> None:
    assert blamed(not_held("*")).confidence >= blamed(not_held("fc2.*")).confidence


def test_layers_in_a_python_list_are_told_as_such() -> None:
    draft = not_held("fc2.*").change_param("fc2.*", registered=False)
    best = convict(draft, "params_not_optimized", where="fc2")
    assert "not registered with the model" in texts(best)


def test_a_stale_optimizer_is_evidence() -> None:
    draft = not_held("*")
    draft.optimizers[0] = replace(draft.optimizers[0], foreign=6)
    assert "holds 6 parameters that no trained model has" in texts(blamed(draft))


def test_parameters_without_gradient_need_no_optimizer() -> None:
    draft = classifier().change_param("fc1.*", optimizer=None, reached=False)
    assert accused(draft) == []
    frozen = classifier().change_param("fc1.*", optimizer=None, requires_grad=False)
    assert "params_not_optimized" not in accused(frozen)


def test_parameters_that_the_loss_does_not_reach_are_not_missed_in_a_stuck_run() -> None:
    draft = classifier().stays().change_param("fc[12].*", optimizer=None, reached=False)
    assert "params_not_optimized" not in accused(draft)


def test_an_optimizer_that_never_stepped_proves_nothing_about_what_it_holds() -> None:
    draft = not_held("fc1.*")
    draft.optimizers = []
    assert "params_not_optimized" not in accused(draft)


# -- frozen ----------------------------------------------------------------------------------


def test_frozen_layers_in_a_run_that_learns_nothing_are_named() -> None:
    draft = classifier().stays().change_param("fc[12].*", requires_grad=False, reached=False)
    draft.of_param("fc[12].*", update_norm=0.0)
    best = convict(draft, "frozen_params", where="fc1")
    assert "requires_grad=False" in texts(best)


def test_frozen_layers_in_a_run_that_learns_are_fine_tuning() -> None:
    assert accused(classifier().change_param("fc[12].*", requires_grad=False)) == []


def test_a_few_frozen_entries_are_not_worth_a_word() -> None:
    draft = classifier().stays().change_param("fc3.bias", requires_grad=False)
    assert "frozen_params" not in accused(draft)


# -- words -----------------------------------------------------------------------------------


def test_modules_are_listed_once_and_briefly() -> None:
    params = [ParamFact("a.weight"), ParamFact("a.bias"), ParamFact("b.weight"), ParamFact("c")]
    assert modules_of(params) == ("a", "b", "c")
    assert listed(("a",)) == "a"
    assert listed(("a", "b")) == "a and b"
    assert listed(("a", "b", "c")) == "a and 2 more"


# -- seen in other ways ----------------------------------------------------------------------


def frozen_at(absmax: float) -> Draft:
    """Two of three layers frozen; their largest weight is so many times the start's bound."""
    draft = classifier().stays(1.2)
    for layer, inputs in (("fc1", 20), ("fc2", 64)):
        draft.change_param(f"{layer}.*", requires_grad=False, optimizer=None, reached=False)
        bound = 1 / np.sqrt(inputs)
        draft.change_param(f"{layer}.weight", init_absmax=absmax * bound)
    return draft.of_param("fc[12].*", update_norm=0.0)


def test_weights_frozen_as_the_library_starts_them_were_never_trained() -> None:
    best = convict(frozen_at(0.999), "frozen_params", where="fc1")
    assert "never trained" in texts(best)
    assert confidence(frozen_at(3.0), "frozen_params") < best.confidence


def test_a_scaler_that_skips_overflowing_steps_is_no_forgotten_step() -> None:
    draft = never_stepped().notes(scaler=True).breaks(0)
    assert "missing_optimizer_step" not in accused(draft)


def ceasing(last: int) -> Draft:
    """A run of 200 steps whose only optimizer steps up to `last`."""
    draft = classifier().notes(backwards=200, optimizer_steps=last + 1)
    draft.put(Kind.RUN, "", m.R_BACKWARDS, np.ones(200))
    return draft.put(Kind.OPTIMIZER, "0.0", m.O_LR, np.full(last + 1, 0.05))


def test_an_optimizer_that_stops_while_backward_goes_on_misses_steps() -> None:
    best = convict(ceasing(19).stays(), "missing_optimizer_step", step=20)
    assert "no optimizer stepped after step 19, and 180 backward passes" in texts(best)


@pytest.mark.parametrize("last", [199, 190, 160])
def test_a_few_backward_passes_at_the_end_need_no_step(last: int) -> None:
    assert "missing_optimizer_step" not in accused(ceasing(last).stays())


def left_behind(last: int) -> Draft:
    """fc1 belongs to an optimizer that steps up to `last`; another one goes on."""
    draft = classifier().change_param("fc1.*", optimizer=1).without("grad_norm")
    draft.put(Kind.OPTIMIZER, "1.0", m.O_LR, np.full(last + 1, 0.05))
    return draft.put(Kind.OPTIMIZER, "0.0", m.O_LR, np.full(200, 0.05))


def test_what_only_a_retired_optimizer_holds_is_left_behind() -> None:
    best = convict(left_behind(40).stays(), "params_not_optimized", where="fc1", step=41)
    assert "stepped for the last time at step 40" in texts(best)


def test_optimizers_that_step_to_the_end_leave_nothing_behind() -> None:
    assert "params_not_optimized" not in accused(left_behind(199).stays())


def test_the_head_alone_may_be_trained_after_all_was() -> None:
    assert "params_not_optimized" not in accused(left_behind(40))


def test_what_an_optimizer_moves_is_not_frozen() -> None:
    draft = classifier().stays().change_param("fc1.*", requires_grad=False)
    still = draft.of_param("fc1.*", update_norm=0.0)
    assert "frozen_params" in accused(still)
    assert "frozen_params" not in accused(draft.of_param("fc1.*", update_norm=0.01))


def test_a_small_part_outside_the_optimizer_was_forgotten_and_a_large_one_maybe_left_out() -> None:
    """A head alone is trained on purpose now and then."""
    assert "params_not_optimized" in accused(not_held("fc3.*"))
    small = confidence(not_held("fc3.*"), "params_not_optimized")
    assert small > confidence(not_held("fc[12].*"), "params_not_optimized")


def test_a_last_layer_that_no_optimizer_holds_is_told_as_such() -> None:
    best = convict(not_held("fc3.*"), "params_not_optimized", where="fc3")
    assert "fc3, the last layer, is among them" in texts(best)
    assert "the last layer" not in texts(
        convict(not_held("fc1.*"), "params_not_optimized", where="fc1")
    )
