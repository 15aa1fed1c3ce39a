"""Number formats and distribution."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.facts import Kind

from ..records import Draft, classifier
from .blame import accused, blamed, convict, texts

LOOKS = 50


def overflowing(top: float = 60000.0) -> Draft:
    """Activations near the end of float16 under autocast; the loss turns NaN."""
    draft = classifier().notes(autocast="float16").breaks(80)
    return draft.of_module("fc2", act_absmax=top)


def halved(eps: float = 1e-8) -> Draft:
    """Weights in float16 and an epsilon that float16 does not have."""
    settings = {"betas.0": 0.9, "betas.1": 0.999, "eps": eps}
    draft = classifier().change_optimizer("Adam", lr=1e-3, **settings).breaks(1)
    return draft.change_param("*", dtype="float16")


def lost_gradients() -> Draft:
    """Gradients that are zero in float16, without loss scaling."""
    draft = classifier().stays().notes(autocast="float16")
    return draft.of_module("fc1", grad_zero=0.95, grad_rms=1e-8)


def coarse(share: float = 0.97, dtype: str = "bfloat16") -> Draft:
    """Weights of which most do not change in a step."""
    draft = classifier().stays().change_param("*", dtype=dtype)
    return draft.of_param("*", still=share)


def clipped_scaled() -> Draft:
    """Clipping before unscaling."""
    draft = classifier().stays().notes(clips_of_scaled_gradients=200)
    return draft.of_optimizer("0", loss_scale=np.full(draft.steps, 65536.0))


# -- overflow ------------------------------------------------------------------------------


def test_activations_near_the_end_of_float16_overflow() -> None:
    best = convict(overflowing(), "half_precision_overflow", where="fc2", step=None)
    assert "float16 ends at 65504" in texts(best)


def test_float16_weights_overflow_without_autocast_too() -> None:
    draft = overflowing().notes(autocast=None).change_param("*", dtype="float16")
    convict(draft, "half_precision_overflow", where="fc2", step=None)


def test_float32_does_not_overflow_there() -> None:
    assert "half_precision_overflow" not in accused(overflowing().notes(autocast=None))
    assert "half_precision_overflow" not in accused(overflowing().notes(autocast="bfloat16"))


def test_infinity_between_finite_modules_is_arithmetic_that_overflows() -> None:
    draft = overflowing(top=60.0).breaks(0).change_param("*", dtype="float16")
    draft.of_module("fc3", in_absmax=np.inf, in_rms=np.inf, in_nonfinite=2.0)
    best = convict(draft, "half_precision_overflow", where="fc3", step=None)
    assert "receives infinity" in texts(best)


def test_infinity_that_a_module_passes_on_was_made_there() -> None:
    draft = overflowing(top=60.0).breaks(0).of_module("fc1", act_nonfinite=4.0, in_nonfinite=0.0)
    draft.of_module("fc3", in_absmax=np.inf, in_rms=np.inf, in_nonfinite=2.0)
    assert blamed(draft).where == ("fc1",)


def test_small_activations_do_not_overflow() -> None:
    assert "half_precision_overflow" not in accused(overflowing(top=900.0))


def test_large_activations_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(overflowing().falls(2.3, 0.1)) == []


def spilling(name: str, step: int = 40) -> Draft:
    """A run in which a module gives infinity from finite numbers, some time after its start."""
    draft = classifier().notes(autocast="float16").breaks(step)
    broken = np.where(np.arange(LOOKS) * 4 >= step, 7.0, 0.0)
    for later in ("fc1", "act1", "fc2", "act2", "fc3"):
        if later >= name or later in ("fc3",):
            draft.of_module(later, act_nonfinite=broken)
    return draft.of_module("fc3", in_nonfinite=broken)


def test_a_sum_of_products_that_becomes_infinite_later_overflows_too() -> None:
    best = convict(spilling("fc2"), "half_precision_overflow", where="fc2", step=None)
    assert "gives infinity from finite input" in texts(best)


def test_spoilt_weights_are_no_overflow() -> None:
    spoilt = np.where(np.arange(LOOKS) * 4 >= 40, np.nan, 1.0)
    draft = spilling("fc2").of_param("fc2.*", weight_norm=spoilt)
    assert "half_precision_overflow" not in accused(draft)


# -- underflow -----------------------------------------------------------------------------


def test_an_epsilon_that_float16_does_not_have_divides_by_zero() -> None:
    best = convict(halved(), "half_precision_underflow")
    assert "eps 1e-08 is zero in float16" in texts(best)


def test_an_epsilon_that_float16_has_is_not_blamed() -> None:
    assert "half_precision_underflow" not in accused(halved(eps=1e-4))


def test_gradients_that_vanish_in_float16_without_scaling_are_lost() -> None:
    best = convict(lost_gradients(), "half_precision_underflow")
    assert "95% of a layer's gradients are exactly zero" in texts(best)


def test_a_loss_scaler_acquits() -> None:
    draft = lost_gradients().notes(scaler="GradScaler")
    assert "half_precision_underflow" not in accused(draft)


def test_zero_gradients_in_float32_have_another_cause() -> None:
    assert "half_precision_underflow" not in accused(lost_gradients().notes(autocast=None))


def faint_head(grad: float = 4e-8) -> Draft:
    """A run that learns, with a layer whose gradient is zero ahead of a faint one."""
    draft = classifier().falls(2.3, 0.1).notes(autocast="float16")
    draft.of_param("fc1.weight", grad_norm=0.0).of_module("fc1", grad_zero=1.0)
    return draft.of_module("fc2", grad_absmax=grad)


def test_a_layer_that_float16_keeps_from_learning_is_found_where_the_loss_falls() -> None:
    best = convict(faint_head(), "half_precision_underflow", where="fc1")
    assert "fc1 and 0 more get gradients of which most are zero, while others do not" in texts(best)


def few_numbers(zero: float, top: float) -> Draft:
    """A run that learns, with a branch whose gradients begin small."""
    draft = classifier().falls(2.3, 0.1).notes(autocast="float16")
    return draft.of_module("fc1", grad_zero=zero, grad_absmax=top)


def test_gradients_that_begin_as_a_few_numbers_of_float16_are_lost() -> None:
    best = convict(few_numbers(0.8, 4e-7), "half_precision_underflow", where="fc1")
    assert "at the end of float16's range" in texts(best)


@pytest.mark.parametrize(("zero", "top"), [(0.5, 4e-7), (0.8, 1e-4), (0.8, 0.0)])
def test_rectifiers_and_gradients_well_within_float16_lose_none(zero: float, top: float) -> None:
    assert accused(few_numbers(zero, top)) == []


def test_zero_gradients_ahead_of_large_ones_are_no_underflow() -> None:
    assert accused(faint_head(grad=1e-2)) == []


# -- coarse weights ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_coarse_weights_that_do_not_move_lose_their_updates(dtype: str) -> None:
    best = convict(coarse(dtype=dtype), "low_precision_update", where="fc1.weight")
    assert f"97% of the {dtype} weights do not change" in texts(best)


def test_float32_weights_have_room_for_updates() -> None:
    assert "low_precision_update" not in accused(coarse(dtype="float32"))


def test_coarse_weights_that_move_are_not_blamed() -> None:
    assert "low_precision_update" not in accused(coarse(share=0.1))


def test_coarse_weights_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(coarse(share=0.6).falls(2.3, 0.1)) == []


def test_movement_that_was_not_read_is_not_claimed_to_be_missing() -> None:
    assert "low_precision_update" not in accused(coarse().without("still"))


# -- clipping ------------------------------------------------------------------------------


def test_clipping_scaled_gradients_is_found_with_the_scale() -> None:
    best = convict(clipped_scaled(), "clip_before_unscale")
    assert "(6.55e+04)" in texts(best)
    assert "unscale_" in best.repair


def test_clipping_unscaled_gradients_is_sound() -> None:
    draft = clipped_scaled().notes(clips_of_scaled_gradients=0)
    assert "clip_before_unscale" not in accused(draft)


# -- ranks and compilers -------------------------------------------------------------------


def test_ranks_with_different_parameters_diverge_from_the_step_on_which_they_part() -> None:
    spread = np.zeros(LOOKS)
    spread[10:] = 0.02
    draft = classifier().put(Kind.RUN, "run", "rank_spread", spread)
    best = convict(draft, "rank_divergence", step=40)
    assert "differ by 0.02" in texts(best)


def test_ranks_within_rounding_are_equal() -> None:
    assert accused(classifier().put(Kind.RUN, "run", "rank_spread", 1e-7)) == []


def test_a_module_that_differs_from_eager_is_named() -> None:
    gap = np.full(LOOKS, 0.2)
    gap[5:] = 400.0
    draft = classifier().of_module("fc2", compiled_gap=gap)
    best = convict(draft, "compiler_divergence", where="fc2", step=20)
    assert "fc2 differs from eager by 400 times" in texts(best)


def test_a_difference_within_rounding_is_none() -> None:
    assert accused(classifier().of_module("fc2", compiled_gap=0.9)) == []


# -- clipping ------------------------------------------------------------------------------


def test_two_clipping_faults_are_told_apart() -> None:
    draft = clipped_scaled()
    norm, limit = np.full(draft.steps, 1e5), np.full(draft.steps, 1.0)
    draft.of_optimizer("0", clip_norm=norm, clip_limit=limit)
    assert blamed(draft).cause == "clip_before_unscale"


def test_infinity_from_finite_input_in_float16_is_an_overflow() -> None:
    draft = classifier().notes(autocast="float16").breaks(0)
    draft.of_module("fc2", act_nonfinite=3.0, act_absmax=np.inf)
    best = convict(draft, "half_precision_overflow", where="fc2", step=None)
    assert "gives infinity from finite input" in texts(best)


def flickering_head(grad: float = 2e-7) -> Draft:
    """A run that learns, with a layer whose gradient is zero at most looks and faint at others."""
    draft = classifier().falls(2.3, 0.1).notes(autocast="float16")
    looks = len(draft.build().series(Kind.PARAM, "fc1.weight", "grad_norm"))
    rare = np.where(np.arange(looks) % 5 == 0, 1.0, 0.0)
    draft.of_param("fc1.weight", grad_norm=1e-5 * rare)
    return draft.of_module("fc1", grad_zero=1.0 - 0.1 * rare, grad_absmax=grad * rare)


def test_a_layer_whose_gradients_float16_mostly_loses_is_found() -> None:
    convict(flickering_head(), "half_precision_underflow", where="fc1")
    assert accused(flickering_head(grad=1e-2)) == []
    scaled = flickering_head().notes(scaler="GradScaler")
    assert "half_precision_underflow" not in accused(scaled)
