"""The path of the gradient: cut, flat, or lost by compiled code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.engine import diagnose
from neuraldbg.core.facts import Kind

from ..records import Draft, classifier
from .blame import accused, convict, texts

LOOKS = 50


def cut(*layers: str) -> Draft:
    """Parameters in the optimizer that never get a gradient."""
    draft = classifier().stays()
    for layer in layers:
        draft.change_param(f"{layer}.*", reached=False)
        draft.of_param(f"{layer}.*", grad_none=1.0, update_ratio=0.0, still=1.0)
    return draft


def test_a_layer_in_front_of_trained_ones_without_gradient_is_cut_off() -> None:
    best = convict(cut("fc1"), "broken_graph", where="fc1")
    assert "runs in the forward pass before modules that do get gradients" in texts(best)


def test_a_last_layer_without_gradient_feeds_nothing_that_gets_one() -> None:
    found = diagnose(cut("fc3").build()).hypotheses
    told = "".join(texts(h) for h in found if h.cause == "broken_graph")
    assert "never got one" in told
    assert "runs in the forward pass before" not in told


def test_the_module_nearest_to_the_cut_comes_with_all_behind_it() -> None:
    assert convict(cut("fc1", "fc2"), "broken_graph", where="fc1").where == ("fc1", "fc2")


def test_a_call_under_no_grad_is_evidence() -> None:
    draft = cut("fc1").change_module("fc1", calls=0, config={"no_grad_calls": 12})
    best = convict(draft, "broken_graph", where="fc1")
    assert "without gradient recording" in texts(best)


def test_a_module_inside_a_called_block_counts_as_called() -> None:
    draft = cut()
    draft.module("block", "Block", leaf=False, before="fc2").layer("block.hidden", 64, 64)
    draft.change_module("block.hidden", calls=0)
    draft.change_param("block.*", reached=False).of_param("block.*", grad_none=1.0, still=1.0)
    assert "broken_graph" in accused(draft)


def test_a_module_that_is_never_called_is_only_unused() -> None:
    draft = classifier().layer("spare", 64, 64).change_module("spare", calls=0)
    draft.change_param("spare.*", reached=False).of_param("spare.*", grad_none=1.0)
    assert accused(draft) == []


def test_a_gradient_that_arrives_now_and_then_is_a_branch_not_a_cut() -> None:
    sometimes = np.where(np.arange(LOOKS) % 5 == 0, 0.0, 1.0)
    assert "broken_graph" not in accused(cut("fc1").of_param("fc1.*", grad_none=sometimes))


def test_two_looks_without_gradient_are_too_few() -> None:
    draft = cut("fc1")
    for name in ("fc1.weight", "fc1.bias"):
        draft.put(Kind.PARAM, name, m.P_GRAD_NONE, [1.0, 1.0])
    assert "broken_graph" not in accused(draft)


def test_where_nothing_is_reached_the_graph_was_never_seen() -> None:
    draft = cut("fc1").change_param("*", reached=None)
    assert "broken_graph" not in accused(draft)


def test_a_cut_and_a_forgotten_parameter_are_told_apart() -> None:
    assert "params_not_optimized" not in accused(cut("fc1"))
    forgotten = classifier().stays().change_param("fc1.*", optimizer=None, group=None)
    assert "broken_graph" not in accused(forgotten.without_series("fc1.*"))


def test_a_loss_that_wants_no_gradient_is_cut_off_from_the_model() -> None:
    draft = Draft(1).module("", "Net", leaf=False).layer("fc1", 4, 4)
    draft.optimizer("SGD", lr=0.1)
    draft.notes(exception="RuntimeError: element 0 of tensors does not require grad")
    best = convict(draft, "broken_graph", where="fc1")
    assert "depends on no parameter" in texts(best)


# -- zeros in place of a gradient ---------------------------------------------------------------


def silent(*layers: str) -> Draft:
    """Layers that get exact zeros, in a run that learns with the rest."""
    draft = classifier()
    for layer in layers:
        draft.of_module(layer, grad_rms=0.0, grad_absmax=0.0, grad_zero=1.0)
        draft.of_param(f"{layer}.*", grad_norm=0.0, update_ratio=0.0, still=1.0)
    return draft


def sequence(draft: Draft) -> Draft:
    """The same run, compiled, of layers that follow each other in one sequence."""
    draft.change_module("", kind="Sequential")
    draft.run = replace(draft.run, compiled=True, backend="inductor")
    return draft


def test_zeros_where_every_unit_is_alive_are_a_path_without_slope() -> None:
    best = convict(silent("fc1"), "broken_graph", where="fc1", step=0)
    assert "exactly zero at every look" in texts(best)
    assert "round" in best.repair


def test_zeros_that_a_layer_of_the_library_should_have_passed_on_are_the_compilers() -> None:
    best = convict(sequence(silent("fc1", "fc2")), "compiler_divergence", where="fc2")
    assert best.where == ("fc2", "fc1")
    assert "--compare-eager" in best.repair


def test_between_layers_that_do_not_follow_each_other_the_users_code_may_have_no_slope() -> None:
    draft = silent("fc1")
    draft.run = replace(draft.run, compiled=True, backend="inductor")
    convict(draft, "broken_graph", where="fc1")


@pytest.mark.parametrize("state", [{"act_negative_units": 1.0}, {"act_flat": 0.99}])
def test_dead_and_saturated_units_stop_a_gradient_by_themselves(state: dict[str, float]) -> None:
    draft = silent("fc1").of_module("act1", **state)
    assert "broken_graph" not in accused(draft)
    assert "compiler_divergence" not in accused(sequence(draft))


def test_weights_of_zero_stop_a_gradient_by_themselves() -> None:
    draft = silent("fc1").change_param("fc2.weight", init_rms=0.0)
    assert "broken_graph" not in accused(draft)


def test_half_precision_loses_small_gradients_by_itself() -> None:
    assert "broken_graph" not in accused(silent("fc1").change_param("*", dtype="float16"))


def test_a_head_that_counts_nothing_is_silent_on_purpose() -> None:
    assert accused(silent("fc2")) == []


def test_a_gradient_of_zero_now_and_then_is_no_silence() -> None:
    sometimes = np.where(np.arange(LOOKS) % 2 == 0, 0.0, 0.5)
    draft = silent("fc1").of_param("fc1.*", grad_norm=sometimes)
    assert "broken_graph" not in accused(draft)


def test_a_sample_of_torch_normal_passes_no_gradient() -> None:
    ops = ("Add", "Mean", "BinaryCrossEntropyWithLogits", "Addmm", "Normal")
    draft = classifier().change_loss(ops=ops)
    best = convict(draft.stays(), "broken_graph")
    assert "torch.normal" in texts(best)
    assert "rsample" in best.repair
    assert "broken_graph" not in accused(classifier().change_loss(ops=ops))


def test_a_layer_that_no_gradient_reaches_says_more_than_a_sample_elsewhere() -> None:
    best = convict(cut("fc1").change_loss(ops=("Mean", "Normal")), "broken_graph", where="fc1")
    assert "torch.normal" not in texts(best)


# -- all or next to nothing ------------------------------------------------------------------


def test_a_loss_whose_graph_reaches_no_parameter_is_cut_off() -> None:
    draft = cut("fc1", "fc2", "fc3")
    draft.change_param("*", reached=False)
    best = convict(draft, "broken_graph", where="fc3")
    assert "reaches no parameter" in texts(best)


def stack(*missing: str) -> Draft:
    """Three blocks with two branches each, some of which never get a gradient."""
    draft = classifier()
    for i in range(3):
        draft.module(f"blocks.{i}", "Block", leaf=False, before="fc3")
        for branch in ("skip", "dense"):
            draft.layer(f"blocks.{i}.{branch}", 64, 64)
    draft.change_param("blocks.*", reached=True)
    for name in missing:
        draft.change_param(f"{name}.*", reached=False)
        draft.of_param(f"{name}.*", grad_none=1.0, still=1.0)
    return draft


def test_the_last_branch_of_a_stack_may_be_left_unused() -> None:
    assert "broken_graph" not in accused(stack("blocks.2.dense"))


def test_a_branch_in_the_middle_of_a_stack_is_cut() -> None:
    assert "broken_graph" in accused(stack("blocks.1.dense"))


def test_a_branch_that_is_cut_in_every_block_is_cut() -> None:
    assert "broken_graph" in accused(stack(*(f"blocks.{i}.dense" for i in range(3))))
