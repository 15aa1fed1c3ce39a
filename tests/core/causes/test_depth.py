"""Depth: plain deep stacks, tiny batches under normalisation, heavy dropout."""

from __future__ import annotations

import pytest

from ..records import Draft, classifier, deep
from .blame import accused, blamed, convict, texts


def plain(depth: int = 14, factor: float = 0.3) -> Draft:
    """A plain stack whose gradient fades by a factor from layer to layer."""
    draft = deep(depth).stays()
    names = [x.name for x in draft.modules if x.kind == "Linear"]
    for i, name in enumerate(reversed(names)):
        draft.of_module(name, grad_rms=1e-2 * factor**i, act_rms=0.5 ** (depth - i))
    return draft


def normalised(size: float, kind: str = "BatchNorm1d") -> Draft:
    """Batch normalisation between the layers, with batches of a size."""
    draft = classifier().stays().module("norm1", kind, before="act1", num_features=64)
    return draft.of_batch("input", size=size)


def dropping(p: float) -> Draft:
    """Dropout in front of the last layer."""
    return classifier().stays().module("drop", "Dropout", before="fc3", p=p)


# -- plain stacks --------------------------------------------------------------------------


def test_a_deep_plain_stack_whose_gradient_fades_lacks_normalisation() -> None:
    best = convict(plain(), "depth_without_normalization", where="fc1")
    assert "14 layers in a row" in texts(best)
    assert "the gradient changes by a factor of" in texts(best)


def test_a_gradient_that_grows_with_depth_counts_as_well() -> None:
    convict(plain(factor=4.0), "depth_without_normalization", where="fc1")


def test_a_deep_plain_stack_that_learns_is_no_fault() -> None:
    assert accused(deep(14)) == []


def test_a_deep_plain_stack_that_learns_a_part_is_no_fault() -> None:
    assert "depth_without_normalization" not in accused(plain(factor=0.55).falls(2.3, 1.0))


def test_a_stack_that_keeps_the_gradient_is_not_blamed() -> None:
    draft = plain(factor=1.0).of_module("*", act_rms=0.8)
    assert "depth_without_normalization" not in accused(draft)


def test_a_shallow_net_is_not_blamed_for_its_depth() -> None:
    assert "depth_without_normalization" not in accused(plain(depth=5))


def test_normalisation_acquits() -> None:
    draft = plain().module("norm", "LayerNorm", before="fc2")
    assert "depth_without_normalization" not in accused(draft)


def test_skip_connections_acquit() -> None:
    draft = plain().change_loss(ops=("NllLoss", "LogSoftmax", *(("Addmm", "Relu", "Add") * 6)))
    assert "depth_without_normalization" not in accused(draft)


def test_the_additions_of_a_recurrence_are_no_skip_connections() -> None:
    draft = plain().change_loss(ops=("NllLoss", *(("Add",) * 20)))
    assert "depth_without_normalization" not in accused(draft)
    draft.module("rnn", "GRU", before="fc3")
    assert "depth_without_normalization" in accused(draft)


def test_without_gradients_nothing_is_said_about_depth() -> None:
    assert "depth_without_normalization" not in accused(plain().without("grad_rms"))


def test_initial_weights_far_too_small_are_another_fault() -> None:
    draft = plain().change_param("*.weight", init_rms=1e-5)
    assert blamed(draft).cause == "init_too_small"
    assert "init_too_small" not in accused(plain())


# -- small batches -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 2.0])
def test_batch_statistics_of_a_pair_are_noise(size: float) -> None:
    best = convict(normalised(size), "batchnorm_small_batch", where="norm1")
    assert f"see batches of {size:.0f}" in texts(best)


def test_batches_of_a_usual_size_are_not_blamed() -> None:
    assert "batchnorm_small_batch" not in accused(normalised(32.0))


def test_small_batches_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(normalised(4.0).falls(2.3, 0.1)) == []


def test_other_normalisations_do_not_mind_small_batches() -> None:
    assert "batchnorm_small_batch" not in accused(normalised(2.0, "LayerNorm"))


def test_batchnorm_in_eval_mode_does_not_use_the_batch() -> None:
    draft = normalised(2.0).change_module("norm1", training=False)
    assert "batchnorm_small_batch" not in accused(draft)


def test_a_batch_of_unknown_size_is_not_small() -> None:
    assert "batchnorm_small_batch" not in accused(normalised(2.0).without("size"))


# -- dropout -------------------------------------------------------------------------------


def test_dropout_that_keeps_a_few_percent_removes_the_signal() -> None:
    best = convict(dropping(0.95), "excessive_dropout", where="drop")
    assert "drop drops 95% of its input" in texts(best)


def test_several_dropouts_multiply() -> None:
    draft = dropping(0.7)
    for i in range(3):
        draft.module(f"drop{i}", "Dropout", before="fc2", p=0.7)
    assert "all together keep 0.8%" in texts(convict(draft, "excessive_dropout", where="drop0"))


def test_dropout_of_everything_is_no_logarithm_of_zero() -> None:
    convict(dropping(1.0), "excessive_dropout", where="drop")


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_usual_dropout_is_not_blamed(p: float) -> None:
    assert "excessive_dropout" not in accused(dropping(p))


def test_heavy_dropout_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(dropping(0.8).falls(2.3, 0.1)) == []


def test_dropout_in_eval_mode_drops_nothing() -> None:
    draft = dropping(0.95).change_module("drop", training=False)
    assert "excessive_dropout" not in accused(draft)


# -- running statistics --------------------------------------------------------------------


def slow(momentum: float, *, evaluations: int = 10) -> Draft:
    """Batch normalisation whose running statistics follow slowly, in a run that learns."""
    draft = classifier().module("norm1", "BatchNorm1d", before="act1", num_features=64)
    draft.change_module("norm1", config={"momentum": momentum})
    return draft.of_batch("input", size=44.0).notes(no_grad_forwards=evaluations)


def test_statistics_that_keep_their_start_spoil_the_evaluation() -> None:
    best = convict(slow(0.001), "batchnorm_small_batch", where="norm1", step=0)
    assert "82% of them is still the mean 0 and variance 1" in texts(best)
    assert "momentum 0.1" in best.repair


@pytest.mark.parametrize("draft", [slow(0.1), slow(0.009), slow(0.001, evaluations=0)])
def test_statistics_that_follow_or_that_nobody_uses_are_sound(draft: Draft) -> None:
    assert accused(draft) == []


def test_dropout_that_keeps_next_to_nothing_explains_what_is_never_said() -> None:
    """A rare class that is never predicted, since the signal does not get there."""
    draft = dropping(0.9).falls(2.3, 1.3).of_batch("target", majority=0.96, distinct=2.0)
    for i in range(3):
        draft.module(f"drop{i}", "Dropout", before="fc2", p=0.9)
    assert blamed(draft).cause == "excessive_dropout"
