"""The activations: squashing, missing, too few units."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuraldbg.core.causes.activations import gradient_profile
from neuraldbg.core.detect import extract
from neuraldbg.core.facts import LossPart, TensorFact
from neuraldbg.core.view import View

from ..records import BATCH, Draft, classifier, deep
from .blame import accused, blamed, confidence, convict, texts

DEPTH = 8


def squashed(kind: str = "Sigmoid", shrink: float = 0.15, flat: float = 0.8) -> Draft:
    """A stack of sigmoids: the gradient shrinks from layer to layer towards the input."""
    draft = deep(DEPTH, kind).stays()
    for i, layer in enumerate(reversed(layers(draft))):
        draft.of_module(layer, grad_rms=1e-2 * shrink**i)
    return draft.of_module("*act*", act_flat=flat)


def layers(draft: Draft) -> list[str]:
    """The linear layers in order of execution."""
    return [x.name for x in draft.modules if x.kind == "Linear"]


def linear(dropout: float | None = None) -> Draft:
    """Three linear layers whose activations were forgotten."""
    draft = classifier().stays(1.9)
    draft.modules = [x for x in draft.modules if x.kind != "ReLU"]
    draft.change_loss(ops=("NllLoss", "LogSoftmax", "Addmm", "Addmm", "Addmm"))
    draft.of_module("fc[23]", in_rms=0.9, in_zero=0.0)
    if dropout is not None:
        draft.module("drop", "Dropout", before="fc3", p=dropout)
        draft.of_module("fc3", in_rms=0.9 / math.sqrt(1 - dropout), in_zero=dropout)
    return draft


def narrow(width: int = 1, steps: int = 200) -> Draft:
    """A bottleneck of very few units; the loss settles high."""
    draft = classifier(steps).change_module("fc1", config={"out_features": width})
    draft.change_module("fc2", config={"in_features": width})
    return draft.falls(2.3, 2.1)


# -- squashing -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Sigmoid", "Tanh"])
def test_stacked_squashing_activations_that_shrink_the_gradient_are_blamed(kind: str) -> None:
    best = convict(squashed(kind), "saturating_activation", where="act1")
    assert "7 sigmoid or tanh activations" in texts(best)
    assert "the gradient shrinks" in texts(best)
    assert "in its flat region" in texts(best)


def test_squashing_activations_through_which_the_run_learns_are_no_fault() -> None:
    assert accused(squashed(shrink=0.5, flat=0.3).falls(2.3, 0.1)) == []


def test_squashing_activations_that_keep_the_gradient_are_not_blamed() -> None:
    assert "saturating_activation" not in accused(squashed(shrink=0.95, flat=0.0))


def test_units_that_raw_targets_drive_flat_yield_to_the_targets() -> None:
    draft = squashed("Tanh", shrink=0.4).stays(4e6)
    alone = confidence(draft, "saturating_activation")
    target = TensorFact((BATCH, 1), "float32", -6e3, 6e3, 0.0, 2e3, distinct=BATCH)
    raw = draft.change_loss(kind="mse", target=target, parts=(LossPart("mse", "mean"),))
    raw.of_batch("target", mean=0.0, std=2e3, low=-6e3, high=6e3, absmax=6e3, sample_std=1.0)
    raw.without("entropy", "majority", "transitions")
    assert confidence(raw, "saturating_activation") < alone
    assert blamed(raw).cause == "unscaled_targets"


def test_one_sigmoid_at_the_output_is_sound() -> None:
    draft = classifier().stays().module("out", "Sigmoid")
    assert "saturating_activation" not in accused(draft)


def test_activations_without_modules_are_counted_in_the_loss_graph() -> None:
    draft = squashed().change_loss(ops=("NllLoss", "LogSoftmax", *(("Addmm", "Sigmoid") * 8)))
    draft.modules = [x for x in draft.modules if x.kind != "Sigmoid"]
    best = convict(draft, "saturating_activation", where="fc1")
    assert "7 sigmoid or tanh activations" in texts(best)


def test_a_plain_deep_stack_without_saturation_is_another_fault() -> None:
    draft = squashed("ReLU", flat=0.0)
    for i in range(4):
        draft.layer(f"extra{i}", 64, 64, before="fc2").of_module(f"extra{i}", grad_rms=1e-6)
    assert blamed(draft).cause == "depth_without_normalization"
    assert blamed(squashed("Sigmoid")).cause == "saturating_activation"


# -- missing -------------------------------------------------------------------------------


def test_linear_layers_that_feed_each_other_have_no_nonlinearity_between_them() -> None:
    draft = linear().stays()
    best = convict(draft, "missing_nonlinearity", where="fc1")
    assert best.where[:3] == ("fc1", "fc2", "fc3")
    assert "fc1 and 2 more follow each other" in texts(best)


def test_an_activation_of_tiny_numbers_is_one_although_it_changes_none() -> None:
    draft = linear().stays()
    for layer in ("fc2", "fc3"):
        draft.module(f"before_{layer}", "Tanh", before=layer)
    assert "missing_nonlinearity" not in accused(draft)


def test_an_activation_written_as_a_function_is_one() -> None:
    draft = linear().stays().change_loss(ops=("NllLoss", "LogSoftmax", "Addmm", "Tanh", "Tanh"))
    assert "missing_nonlinearity" not in accused(draft)


def test_dropout_between_linear_layers_is_no_nonlinearity() -> None:
    convict(linear(dropout=0.5).stays(), "missing_nonlinearity", where="fc1")


def test_zeros_of_a_rectifier_are_not_taken_for_those_of_a_dropout() -> None:
    draft = linear(dropout=0.5).stays().of_module("fc3", in_rms=0.6, in_zero=0.5)
    assert "missing_nonlinearity" not in accused(draft.of_module("fc2", in_rms=0.6, in_zero=0.5))


def test_the_block_of_the_layers_is_named_too() -> None:
    draft = Draft().module("", "Net", leaf=False).module("mlp", "MLP", leaf=False)
    base = linear().stays()
    for x in base.modules[1:]:
        draft.layer(f"mlp.{x.name}", 64, 64)
        draft.of_module(f"mlp.{x.name}", in_rms=0.9, in_zero=0.0)
    draft.optimizer("SGD", lr=0.05).notes(backwards=200, optimizer_steps=200).stays()
    draft.losses = base.losses
    draft.of_batch("target", entropy=2.15, distinct=10.0)
    best = convict(draft, "missing_nonlinearity", where="mlp.fc1")
    assert best.where == ("mlp.fc1", "mlp.fc2", "mlp.fc3", "mlp")


def test_a_rectifier_without_a_module_is_seen_in_the_numbers() -> None:
    draft = linear().stays().of_module("fc[23]", in_rms=0.6, in_zero=0.5)
    assert "missing_nonlinearity" not in accused(draft)


def test_a_smooth_activation_without_a_module_is_seen_in_the_numbers() -> None:
    draft = linear().stays().of_module("fc[23]", in_rms=0.55, in_zero=0.0)
    assert "missing_nonlinearity" not in accused(draft)


def test_a_linear_model_that_learns_is_no_fault() -> None:
    assert accused(linear().falls(2.3, 0.1)) == []


def test_two_linear_layers_among_nonlinear_ones_are_a_bottleneck_not_a_fault() -> None:
    draft = classifier().stays()
    draft.modules = [x for x in draft.modules if x.name != "act2"]
    draft.of_module("fc3", in_rms=0.9, in_zero=0.0)
    assert "missing_nonlinearity" not in accused(draft)


def test_layers_without_readings_are_not_called_linear() -> None:
    assert "missing_nonlinearity" not in accused(linear().stays().without("in_rms"))


# -- capacity ------------------------------------------------------------------------------


def test_a_bottleneck_of_one_unit_is_too_narrow() -> None:
    best = convict(narrow(1), "insufficient_capacity", where="fc1", step=None)
    assert "only 1 units for 20 inputs" in texts(best)


def test_a_loss_that_still_falls_speaks_against_it() -> None:
    falling = narrow().loses(np.linspace(2.6, 2.1, 200))
    cause = "insufficient_capacity"
    assert confidence(falling, cause) < confidence(narrow(), cause)


def test_a_loss_of_a_few_steps_is_never_called_flat() -> None:
    best = convict(narrow(steps=16).stays(), "insufficient_capacity", where="fc1", step=None)
    assert "the loss is flat" not in texts(best)


def test_a_narrow_layer_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(narrow().falls(2.3, 0.1)) == []


@pytest.mark.parametrize("width", [5, 64])
def test_a_wider_layer_is_not_blamed(width: int) -> None:
    assert "insufficient_capacity" not in accused(narrow(width))


def test_a_layer_that_is_wider_than_its_input_is_no_bottleneck() -> None:
    draft = narrow(3).change_module("fc1", config={"in_features": 1})
    assert "insufficient_capacity" not in accused(draft)


def test_a_missing_nonlinearity_is_told_from_a_narrow_layer() -> None:
    assert "missing_nonlinearity" not in accused(narrow())
    assert "insufficient_capacity" not in accused(linear().stays())


# -- profile -------------------------------------------------------------------------------


def test_the_gradient_profile_follows_the_order_of_execution() -> None:
    draft = classifier().of_module("fc1", grad_rms=1e-5).of_module("fc2", grad_rms=0.0)
    record = draft.build()
    profile = gradient_profile(View(record, extract(record)))
    assert profile == [("fc1", pytest.approx(1e-5)), ("fc3", pytest.approx(2e-3))]


def convolutions(*, compiled: bool = False, depth: int = 3) -> Draft:
    """Convolutions with nothing between them, and a head behind an average."""
    draft = Draft().module("", "Net", leaf=False)
    for i in range(depth):
        draft.layer(f"conv{i}", 8, 8, "Conv1d").of_module(f"conv{i}", in_rms=0.9, in_zero=0.0)
    draft.layer("head", 8, 2).losses.append(classifier().losses[0])
    ops = ("CompiledFunction",) if compiled else ("NllLoss", "Addmm", "Mean", "Convolution")
    draft.change_loss(ops=ops).of_batch("target", entropy=0.69, distinct=2.0)
    return draft.optimizer("SGD", lr=0.1).stays(0.69)


@pytest.mark.parametrize("compiled", [False, True])
def test_convolutions_that_follow_each_other_are_one_linear_map(compiled: bool) -> None:
    convict(convolutions(compiled=compiled), "missing_nonlinearity", where="conv0")


def test_functions_inside_a_compiled_graph_may_bend_the_rest() -> None:
    assert "missing_nonlinearity" not in accused(convolutions(compiled=True, depth=2))


def test_a_pair_of_layers_without_activation_is_a_factorisation_where_others_have_one() -> None:
    draft = convolutions().module("act", "ReLU", before="conv2")
    assert "missing_nonlinearity" not in accused(draft)


def test_the_gates_of_a_recurrent_layer_are_no_stack() -> None:
    ops = ("NllLoss", "LogSoftmax", "Addmm", *("Sigmoid", "Sigmoid", "Tanh") * 4)
    rms = {"fc1": 1e-5, "fc2": 1e-3, "fc3": 1e-1}
    draft = classifier().stays(1.4).change_loss(ops=ops)
    for name, value in rms.items():
        draft.of_module(name, grad_rms=value)
    assert "saturating_activation" in accused(draft)
    draft.change_module("fc1", kind="GRU")
    assert "saturating_activation" not in accused(draft)


def test_batch_normalisation_between_linear_layers_is_no_nonlinearity() -> None:
    draft = linear().stays()
    for layer in ("fc2", "fc3"):
        draft.module(f"norm_{layer}", "BatchNorm1d", before=layer)
        draft.of_module(f"norm_{layer}", act_rms=1.0).of_module(layer, in_rms=1.0)
    convict(draft, "missing_nonlinearity", where="fc1")


def test_an_activation_that_is_made_and_never_called_says_so() -> None:
    draft = linear().stays()
    draft.module("act", "ReLU", before="fc2").change_module("act", order=None, calls=0)
    best = convict(draft, "missing_nonlinearity", where="fc1")
    assert "act was made, and is never called" in texts(best)


def coupling(start: float) -> Draft:
    """A flow: tanh functions bound the scales, and the ends of the nets start this small."""
    draft = (
        classifier()
        .stays(5.7)
        .change_loss(kind="custom", ops=("Neg", "Mean", "Tanh", "Tanh", "Tanh", "Tanh"))
    )
    draft.of_module("fc1", grad_rms=1e-5)
    return draft.change_param("fc3.weight", init_rms=start)


def test_a_net_whose_end_starts_near_zero_squashes_nothing() -> None:
    assert "saturating_activation" in accused(coupling(0.2))
    assert "saturating_activation" not in accused(coupling(0.0))


def widened(inside: int, *, bends: bool = False) -> Draft:
    """A model that bends, with a head of two layers between which nothing does."""
    draft = classifier().layer("head1", 64, inside).layer("head2", inside, 10)
    draft.of_module("head1", act_rms=1.3)
    return draft.of_module("head2", in_rms=1.0 if bends else 1.3, in_zero=0.5 if bends else 0.0)


def test_a_wide_layer_between_two_others_lacks_an_activation() -> None:
    best = convict(widened(256), "missing_nonlinearity", where="head1")
    assert "64 numbers become 256 and then 10" in texts(best)


def test_a_narrow_layer_between_two_others_is_a_factorisation() -> None:
    assert accused(widened(32)) == []


def test_a_wide_layer_before_an_activation_is_sound() -> None:
    assert accused(widened(256, bends=True)) == []


def crowded(width: int, classes: int) -> Draft:
    """A layer of few units in front of many classes; the loss settles half way."""
    draft = narrow(width).falls(math.log(classes), 0.5 * math.log(classes))
    draft.change_module("fc1", config={"in_features": 20})
    target = TensorFact((640,), "int64", 0.0, classes - 1.0, 9.0, 5.0, True, classes)
    draft.change_loss(target=target)
    return draft.of_batch("target", entropy=math.log(classes))


def test_a_few_units_cannot_tell_many_classes_apart() -> None:
    best = convict(crowded(6, 30), "insufficient_capacity", where="fc1", step=None)
    assert "by which 30 classes are to be told apart" in texts(best)


@pytest.mark.parametrize(("width", "classes"), [(6, 10), (32, 1000)])
def test_units_for_as_many_classes_or_a_wide_layer_suffice(width: int, classes: int) -> None:
    assert "insufficient_capacity" not in accused(crowded(width, classes))


def test_channels_carry_more_than_one_number_each() -> None:
    kernels = crowded(6, 30).change_module("fc1", kind="Conv2d")
    assert "insufficient_capacity" not in accused(kernels)
