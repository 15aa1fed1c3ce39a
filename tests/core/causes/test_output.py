"""Where the last activation meets the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.causes.output import last_activation, last_module
from neuraldbg.core.facts import Kind, TensorFact
from neuraldbg.core.view import View

from ..records import BATCH, CLASSES, Draft, classifier, regression
from .blame import accused, blamed, convict, texts

SHAPE = (BATCH, CLASSES)
ONE_HOT = TensorFact(
    SHAPE, "float32", 0.0, 1.0, 0.1, 0.3, integral=True, distinct=2, sums_to_one=True
)
INDICES = TensorFact((BATCH,), "int64", 0.0, 9.0, 4.5, 2.9, integral=True, distinct=CLASSES)


def ending(kind: str, *, loss: str = "cross_entropy") -> Draft:
    """A classifier with an activation after its last layer."""
    draft = classifier().stays().module("out", kind)
    return draft.change_loss(kind=loss, last_op=kind)


def fitted(kind: str, low: float, high: float) -> Draft:
    """A regression with an activation after its last layer, and targets of a range."""
    draft = regression().stays(1.0).module("out", kind).change_loss(last_op=kind)
    return draft.of_batch("target", low=low, high=high, absmax=max(-low, high))


# -- squashed twice ------------------------------------------------------------------------


def test_softmax_before_cross_entropy_is_applied_twice() -> None:
    best = convict(ending("Softmax"), "output_activation_mismatch", where="out")
    assert "softmax is applied before a cross-entropy" in texts(best)


def test_a_prediction_that_sums_to_one_is_a_softmax_whoever_made_it() -> None:
    draft = classifier().stays().change_loss(last_op="Div")
    fact = TensorFact(SHAPE, "float32", 0.0, 1.0, 0.1, 0.2, sums_to_one=True)
    best = convict(draft.change_loss(prediction=fact), "output_activation_mismatch", where="fc3")
    assert "already sums to one" in texts(best)


@pytest.mark.parametrize("kind", ["ReLU", "Sigmoid", "Tanh"])
def test_logits_that_are_cut_before_cross_entropy(kind: str) -> None:
    best = convict(ending(kind), "output_activation_mismatch", where="out")
    assert f"{kind.lower()} cuts the logits" in texts(best)


@pytest.mark.parametrize("kind", ["Sigmoid", "Softmax"])
def test_sigmoid_before_bce_with_logits_is_applied_twice(kind: str) -> None:
    draft = ending(kind, loss="bce_with_logits").of_batch("target", mean=0.5)
    best = convict(draft.stays(0.69), "output_activation_mismatch", where="out")
    assert "before a loss that applies a sigmoid itself" in texts(best)


def test_relu_before_bce_with_logits_cuts_half_of_the_answers() -> None:
    draft = ending("ReLU", loss="bce_with_logits").of_batch("target", mean=0.5).stays(0.69)
    best = convict(draft, "output_activation_mismatch", where="out")
    assert "no probability under 0.5" in texts(best)


def test_logits_that_lie_between_zero_and_one_look_like_probabilities() -> None:
    fact = TensorFact((BATCH, 1), "float32", 0.01, 0.99, 0.5, 0.2)
    draft = classifier().change_loss(kind="bce_with_logits", last_op="Mul", prediction=fact)
    draft.of_batch("target", mean=0.5).stays(0.69)
    assert "as after a sigmoid" in texts(blamed(draft))
    plain = draft.change_loss(prediction=replace(fact, low=-3.0, high=3.0))
    assert "output_activation_mismatch" not in accused(plain)


def test_softmax_that_the_run_survives_is_still_told() -> None:
    convict(ending("Softmax").falls(2.3, 0.1), "output_activation_mismatch", where="out")


def test_a_log_softmax_twice_changes_nothing() -> None:
    assert accused(ending("LogSoftmax").falls(2.3, 0.1)) == []


@pytest.mark.parametrize(
    ("kind", "loss", "mean"), [("Sigmoid", "bce", 0.5), ("LogSoftmax", "nll", 4.5)]
)
def test_the_activation_that_a_loss_expects_is_sound(kind: str, loss: str, mean: float) -> None:
    draft = ending(kind, loss=loss).of_batch("target", mean=mean)
    assert "output_activation_mismatch" not in accused(draft)


def test_a_bare_linear_output_is_sound() -> None:
    assert "output_activation_mismatch" not in accused(classifier().stays())


def test_without_a_loss_nothing_is_said() -> None:
    draft = ending("Softmax")
    draft.losses = []
    assert "output_activation_mismatch" not in accused(draft)


# -- cut off -------------------------------------------------------------------------------


def test_a_rectified_output_cannot_reach_negative_targets() -> None:
    best = convict(fitted("ReLU", -2.5, 2.5), "output_activation_mismatch", where="out")
    assert "targets go down to -2.5" in texts(best)


def test_a_rectified_output_may_have_targets_that_are_not_negative() -> None:
    assert "output_activation_mismatch" not in accused(fitted("ReLU", 0.0, 5.0))


def test_a_rectified_output_that_is_mostly_zero_is_dead() -> None:
    draft = fitted("ReLU", 0.0, 5.0).of_module("out", act_zero=0.95)
    best = convict(draft, "output_activation_mismatch", where="out")
    assert "most of it is zero" in texts(best)


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("Sigmoid", 0.0, 30.0), ("Sigmoid", -3.0, 1.0), ("Tanh", -4.0, 4.0)]
)
def test_a_bounded_output_cannot_reach_targets_outside(kind: str, low: float, high: float) -> None:
    best = convict(fitted(kind, low, high), "output_activation_mismatch", where="out")
    assert f"{kind} bounds the prediction" in texts(best)


@pytest.mark.parametrize(("kind", "low", "high"), [("Sigmoid", 0.0, 1.0), ("Tanh", -1.0, 1.0)])
def test_a_bounded_output_may_have_targets_inside(kind: str, low: float, high: float) -> None:
    assert "output_activation_mismatch" not in accused(fitted(kind, low, high))


def test_behind_compiled_code_the_last_module_tells() -> None:
    draft = fitted("ReLU", -2.5, 2.5).change_loss(last_op="CompiledFunction")
    convict(draft, "output_activation_mismatch", where="out")


@pytest.mark.parametrize("last_op", ["CompiledFunction", "Addmm", None])
def test_a_linear_output_reaches_negative_targets_compiled_or_not(last_op: str | None) -> None:
    draft = regression().stays(1.0).change_loss(last_op=last_op)
    assert "output_activation_mismatch" not in accused(draft)


def test_a_rectifier_that_ran_last_need_not_make_the_prediction() -> None:
    draft = fitted("ReLU", -2.5, 2.5).change_loss(last_op="Sub")
    assert "output_activation_mismatch" not in accused(draft)


def heads(last: str = "ReLU") -> Draft:
    """Two heads on one body; the first ends in a rectifier."""
    draft = regression().stays(1.0).change_module("fc3", config={"out_features": 64})
    draft.module("policy", "Sequential", leaf=False)
    draft.layer("policy.0", 64, 64).module("policy.1", "Tanh").layer("policy.2", 64, 16)
    draft.module("policy.3", last).of_module("policy.3", act_zero=0.6, act_rms=0.6)
    draft.layer("value", 64, 1).of_module("value", in_rms=2.0)
    return draft


def test_a_rectifier_at_the_end_of_one_of_several_heads_is_found() -> None:
    best = convict(heads(), "output_activation_mismatch", where="policy.3")
    assert "policy.3 is a ReLU at the very end of a head: 60%" in texts(best)


def test_a_rectifier_that_feeds_a_later_layer_is_inside() -> None:
    draft = heads().of_module("value", in_rms=0.6)
    assert "output_activation_mismatch" not in accused(draft)


def test_a_rectifier_in_the_middle_of_a_sequence_is_inside() -> None:
    draft = heads().layer("policy.4", 4, 4, before="value").of_module("policy.4", in_rms=2.0)
    assert "output_activation_mismatch" not in accused(draft)


def test_a_rectifier_that_lets_most_through_is_harmless() -> None:
    assert "output_activation_mismatch" not in accused(heads().of_module("policy.3", act_zero=0.1))


# -- the loss ------------------------------------------------------------------------------


def squared(target: TensorFact, last_op: str = "Addmm") -> Draft:
    """A classifier trained with a squared error."""
    draft = regression().stays(1.0).change_loss(target=target, last_op=last_op)
    return draft.of_batch("target", low=0.0, high=1.0, absmax=1.0)


def test_a_squared_error_on_class_indices_is_the_wrong_loss() -> None:
    best = convict(squared(INDICES), "wrong_loss")
    assert "10 class indices" in texts(best)
    assert "cross-entropy for classes" in best.repair


def test_a_squared_error_on_one_hot_classes_after_softmax_is_the_wrong_loss() -> None:
    best = convict(squared(ONE_HOT, "Softmax"), "wrong_loss")
    assert "softmax probabilities with one-hot classes" in texts(best)


def test_a_squared_error_on_one_hot_classes_is_weaker_evidence() -> None:
    weaker = blamed(squared(ONE_HOT))
    assert weaker.cause == "wrong_loss"
    assert weaker.confidence < blamed(squared(ONE_HOT, "Softmax")).confidence


def test_a_squared_error_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(squared(ONE_HOT).falls(1.0, 0.05)) == []


def test_targets_that_run_through_all_numbers_are_codes_of_classes() -> None:
    codes = TensorFact((BATCH, 1), "float32", 0.0, 9.0, integral=True, distinct=10)
    best = convict(squared(codes), "wrong_loss")
    assert "0 to 9" in texts(best)
    assert accused(squared(codes).falls(8.0, 0.1)) == []


@pytest.mark.parametrize(
    "target",
    [
        TensorFact((BATCH, 1), "float32", -2.5, 2.5, integral=False, distinct=BATCH),
        TensorFact((BATCH,), "int64", 0.0, 5000.0, integral=True, distinct=900),
        TensorFact((BATCH, 1), "float32", 0.0, 17.0, integral=True, distinct=10),
        TensorFact((BATCH,), "int64", 0.0, 1.0, integral=True, distinct=2),
    ],
)
def test_quantities_and_counts_may_have_a_squared_error(target: TensorFact) -> None:
    assert "wrong_loss" not in accused(squared(target))


def test_cross_entropy_on_classes_is_the_right_loss() -> None:
    assert "wrong_loss" not in accused(classifier().stays())


def test_without_a_target_the_loss_is_not_judged() -> None:
    assert "wrong_loss" not in accused(squared(INDICES).change_loss(target=None))


def test_a_mismatched_activation_and_a_wrong_loss_are_told_apart() -> None:
    assert "wrong_loss" not in accused(ending("Softmax"))
    assert "output_activation_mismatch" not in accused(squared(INDICES))


# -- what was last -------------------------------------------------------------------------


def test_what_made_the_prediction_is_read_off_the_graph_or_else_off_the_modules() -> None:
    draft = classifier().module("out", "Tanh")
    assert last_activation(View(draft.build(), ())) == "Addmm"
    assert last_activation(View(draft.change_loss(last_op=None).build(), ())) == "Tanh"
    draft.losses = []
    assert last_activation(View(draft.build(), ())) is None


def test_without_modules_there_is_no_last_one() -> None:
    draft = classifier().change_loss(last_op=None)
    draft.modules = []
    assert last_module(View(draft.build(), ())) is None
    assert last_activation(View(draft.build(), ())) is None


def test_targets_are_judged_over_the_whole_run() -> None:
    low = np.zeros(50)
    low[30] = -2.0
    draft = fitted("ReLU", 0.0, 5.0).of_batch("target", low=low)
    convict(draft, "output_activation_mismatch", where="out")


# -- losses that cannot work at all ----------------------------------------------------------


def test_a_cross_entropy_over_one_class_is_the_wrong_loss() -> None:
    single = TensorFact((64, 1), "float32", -1.0, 1.0, 0.0, 0.5)
    best = convict(classifier().stays(0.0).change_loss(prediction=single), "wrong_loss")
    assert "over one class" in texts(best)


def test_raw_scores_do_not_fit_a_negative_log_likelihood() -> None:
    draft = classifier().stays().change_loss(kind="nll", last_op="Addmm")
    best = convict(draft, "output_activation_mismatch", where="fc3")
    assert "expects log-probabilities" in texts(best)


def test_log_probabilities_fit_a_negative_log_likelihood() -> None:
    logs = TensorFact((64, 10), "float32", -9.0, -0.1, -2.3, 0.9)
    draft = classifier().change_loss(kind="nll", last_op="LogSoftmax", prediction=logs)
    assert accused(draft) == []


def squeezed(op: str, ends: float, spread: float = 1e-5) -> Draft:
    """A loss of the script's own that hides its targets, and predictions that end at one value."""
    draft = regression().falls(12.0, 6.8)
    draft.losses = [
        replace(draft.losses[0], kind="custom", target=None, parts=(), ops=("Sum", op, "Addmm"))
    ]
    share = np.linspace(0, 1, 50)
    draft.put(Kind.LOSS, "prediction", m.L_PRED_MEAN, share * ends)
    return draft.put(Kind.LOSS, "prediction", m.L_PRED_STD, 0.3 * (1 - share) + share * spread)


@pytest.mark.parametrize("op", ["Tanh", "Sigmoid"])
def test_predictions_that_all_end_at_the_edge_cannot_reach_the_targets(op: str) -> None:
    best = convict(squeezed(op, 0.9999), "output_activation_mismatch", where="fc3")
    assert "ends at 0.9999: its edge" in texts(best)


def test_predictions_inside_the_bounds_are_sound() -> None:
    assert "output_activation_mismatch" not in accused(squeezed("Tanh", 0.9))
    assert "output_activation_mismatch" not in accused(squeezed("Tanh", 0.9999, spread=0.1))
    assert "output_activation_mismatch" not in accused(squeezed("Addmm", 0.9999))


# -- what no training can mend ------------------------------------------------------------------


def test_a_softmax_over_one_output_is_one() -> None:
    draft = ending("Softmax", loss="mse")
    one = TensorFact((BATCH, 1), "float32", 1.0, 1.0, 1.0, 0.0, integral=True, distinct=1)
    best = convict(draft.change_loss(prediction=one), "output_activation_mismatch", where="out")
    assert "a softmax over one output is one" in texts(best)


def signs(end: float) -> Draft:
    """A binary cross-entropy on targets of -1 and 1."""
    target = TensorFact((BATCH, 1), "float32", -1.0, 1.0, 0.0, 1.0, integral=True, distinct=2)
    return classifier().falls(0.7, end).change_loss(kind="bce_with_logits", target=target)


def test_targets_below_zero_leave_a_binary_cross_entropy_without_bound() -> None:
    best = convict(signs(-100.0), "wrong_loss", where="target")
    assert "the targets go from -1 to 1" in texts(best)


def test_targets_below_zero_that_are_masked_are_sound() -> None:
    assert "wrong_loss" not in accused(signs(0.1))


def several(fewest: int, most: int) -> Draft:
    """A cross-entropy whose targets hold so many ones for a sample; the run learns half."""
    return classifier().falls(3.3, 1.6).change_loss(kind="custom", ones=(fewest, most))


def test_one_softmax_does_not_fit_samples_of_several_classes_or_of_none() -> None:
    best = convict(several(0, 4), "wrong_loss", where="target")
    assert "0 to 4 ones for a sample" in texts(best)
    assert "BCEWithLogitsLoss" in best.repair


@pytest.mark.parametrize(("fewest", "most"), [(1, 1), (0, 1), (3, 3), (1, 40)])
def test_one_softmax_fits_one_class_each_and_what_was_bought(fewest: int, most: int) -> None:
    assert "wrong_loss" not in accused(several(fewest, most))
