"""Biases that outweigh what the layer computes."""

from __future__ import annotations

import numpy as np
import pytest

from ..records import Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def far_bias(value: float = -20.0) -> Draft:
    """Biases that put the first layer's units below zero for good."""
    draft = classifier().stays()
    return draft.change_param("fc1.bias", init_mean=value, init_absmax=abs(value) * 1.05)


def test_biases_that_kill_the_units_from_the_first_step_on_are_bad() -> None:
    draft = far_bias().of_module("act1", act_negative_units=1.0, act_rms=0.0, act_zero=1.0)
    best = convict(draft, "bad_bias_init", where="fc1")
    assert "act1 is dead from the first step on" in texts(best)
    assert "fc1.bias starts at -20" in texts(best)


def test_biases_that_saturate_the_units_are_bad() -> None:
    draft = far_bias(15.0).change_module("act1", kind="Sigmoid").of_module("act1", act_flat=1.0)
    assert "act1 is saturated" in texts(convict(draft, "bad_bias_init", where="fc1"))


def test_units_below_zero_speak_where_the_activation_is_no_module() -> None:
    draft = far_bias().of_module("fc1", act_negative_units=1.0)
    assert "100% of the units of fc1 are below zero" in texts(blamed(draft))


def gated(bias: float = -10.0, heard: float = 1e-8) -> Draft:
    """Gates that a bias closes, of a model that learns most of its task without them."""
    draft = classifier().falls(2.3, 0.5)
    draft.change_param("fc2.bias", init_mean=bias, init_absmax=-bias * 1.0)
    draft.of_module("fc2", act_negative_units=1.0)
    return draft.of_module("fc2", grad_rms=heard).of_module("fc[13]", grad_rms=1e-4)


def test_gates_that_a_bias_closes_are_told_though_the_rest_learns() -> None:
    best = convict(gated(), "bad_bias_init", where="fc2")
    assert "a sigmoid after it lets 5e-05 through" in texts(best)


def test_a_bias_far_below_zero_whose_layer_is_heard_is_no_gate() -> None:
    assert "bad_bias_init" not in accused(gated(heard=1e-4))
    assert "bad_bias_init" not in accused(gated(bias=-4.0))


def test_biases_near_zero_are_not_blamed_for_dead_units() -> None:
    draft = far_bias(-0.5).of_module("act1", act_negative_units=1.0)
    assert "bad_bias_init" not in accused(draft)


def test_biases_of_both_signs_are_no_shift() -> None:
    draft = far_bias().change_param("fc1.bias", init_mean=-2.5, init_absmax=30.0, init_rms=16.0)
    assert "bad_bias_init" not in accused(draft)


def test_far_biases_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(far_bias().falls(2.3, 0.1)) == []


def test_units_that_die_later_speak_less_for_the_biases() -> None:
    dying = np.full(50, 0.05)
    dying[10:] = 1.0
    later = far_bias().of_module("act1", act_negative_units=dying)
    at_once = far_bias().of_module("act1", act_negative_units=1.0)
    assert confidence(later, "bad_bias_init") < confidence(at_once, "bad_bias_init")


# -- numbers -------------------------------------------------------------------------------


def one_far(value: float = 40.0) -> Draft:
    """One entry of the last bias far from any sound start."""
    return (
        classifier()
        .stays(20.0)
        .change_param("fc3.bias", init_absmax=value, init_mean=4.0, init_rms=12.6)
    )


def test_one_entry_of_a_bias_that_outweighs_the_rest_is_found() -> None:
    best = convict(one_far(), "bad_bias_init", where="fc3")
    assert "starts at 40" in texts(best)


def test_a_prior_in_the_last_bias_is_sound() -> None:
    assert "bad_bias_init" not in accused(one_far(6.0))


def shut(bias: float = -1.5, grad: float = 0.0) -> Draft:
    """A gate below zero from the start, without gradient, in a run that learns."""
    draft = classifier().falls(2.3, 0.1)
    draft.change_param("fc2.bias", init_mean=bias, init_absmax=abs(bias), init_rms=abs(bias))
    return draft.of_param("fc2.*", grad_norm=grad).of_module("fc2", act_negative_units=1.0)


def test_a_gate_that_never_opens_is_found_where_the_rest_learns() -> None:
    best = convict(shut(), "bad_bias_init", where="fc2")
    assert "the biases of fc2 start at -1.5" in texts(best)


@pytest.mark.parametrize("draft", [shut(grad=0.1), shut(bias=-0.1)])
def test_a_gate_that_gets_a_gradient_or_was_hardly_shut_is_sound(draft: Draft) -> None:
    assert "bad_bias_init" not in accused(draft)


def test_biases_of_two_units_may_be_alike_by_chance() -> None:
    narrow = shut(bias=-0.6).change_param("fc2.weight", shape=(64, 2))
    assert "bad_bias_init" not in accused(narrow)
    convict(shut(bias=-0.6).change_param("fc2.weight", shape=(64, 8)), "bad_bias_init", where="fc2")


def forgetful(start: float = 0.0) -> Draft:
    """An LSTM whose biases start so, in a run that learns nothing."""
    draft = classifier().stays().module("lstm", "LSTM", before="fc1", hidden_size=48)
    for name in ("bias_ih_l0", "bias_hh_l0"):
        draft.param(f"lstm.{name}", (192,), rms=start)
        draft.change_param(f"lstm.{name}", init_rms=start, init_mean=0.0, init_absmax=2 * start)
    return draft


def test_forget_gates_that_start_at_one_half_remember_little() -> None:
    best = convict(forgetful(), "bad_bias_init", where="lstm")
    assert "its forget gates start at one half" in texts(best)
    assert "forget gates' biases to 1" in best.repair


def test_the_usual_start_of_an_lstm_is_not_blamed() -> None:
    assert "bad_bias_init" not in accused(forgetful(0.08))


def test_forget_gates_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(forgetful().falls(2.3, 0.1)) == []
