"""How the loss is put together: shapes and reductions."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind, LossPart

from ..records import BATCH, Draft, classifier, regression
from .blame import accused, blamed, confidence, convict, texts


def summed(batch: int = 512, factor: float | None = 1.0) -> Draft:
    """A loss that is the sum over the samples of a batch; the run diverges."""
    draft = classifier().diverges(2.3 * batch)
    parts = (LossPart("cross_entropy", "sum", factor, batch),)
    draft.change_loss(reduction="sum", parts=parts, batch=batch)
    return draft.of_param("*.weight", update_ratio=0.05)


def mixed(factor: float | None = 1.0, entries: int = 784 * BATCH) -> Draft:
    """A mean next to a sum."""
    parts = (LossPart("mse", "mean", 1.0, BATCH), LossPart("kl_div", "sum", factor, entries))
    return regression().stays(100.0).change_loss(parts=parts)


# -- shapes --------------------------------------------------------------------------------


def broadcast() -> Draft:
    """Shapes (32, 1) and (32,) at the loss."""
    return regression().stays(1.0).change_loss(broadcast=((BATCH, 1), (BATCH,)))


def test_shapes_that_broadcast_to_a_square_are_found_at_the_output_layer() -> None:
    best = convict(broadcast(), "loss_shape_broadcast", where="fc3")
    assert "shapes (32, 1) and (32,) meet at the loss" in texts(best)
    assert "squeeze" in best.repair


def test_it_is_told_even_where_the_loss_falls() -> None:
    convict(broadcast().falls(1.0, 0.05), "loss_shape_broadcast", where="fc3")


def test_the_last_module_is_named_where_no_layer_has_a_single_output() -> None:
    draft = broadcast().change_module("fc3", config={"out_features": 4}).module("out", "Flatten")
    convict(draft, "loss_shape_broadcast", where="out")


def test_equal_shapes_are_sound() -> None:
    assert "loss_shape_broadcast" not in accused(regression().stays(1.0))


# -- sums ----------------------------------------------------------------------------------


def test_a_sum_over_a_large_batch_scales_the_gradient() -> None:
    best = convict(summed(), "loss_reduction_scale")
    assert "the loss is a sum over 512 samples" in texts(best)
    assert "mean" in best.repair


def test_a_sum_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(summed().falls(1000.0, 20.0)) == []


def test_a_sum_that_is_divided_again_is_a_mean() -> None:
    assert "loss_reduction_scale" not in accused(summed(factor=1 / 512))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_sum_over_a_handful_of_samples_is_harmless(batch: int) -> None:
    assert "loss_reduction_scale" not in accused(summed(batch))


def test_a_sum_times_something_unknown_is_not_judged() -> None:
    assert "loss_reduction_scale" not in accused(summed(factor=None))


def test_an_optimizer_that_rescales_gradients_feels_it_less() -> None:
    adaptive = summed().change_optimizer("Adam", lr=1e-3)
    assert confidence(adaptive, "loss_reduction_scale") < confidence(
        summed(), "loss_reduction_scale"
    )


def test_a_mean_with_a_high_rate_is_the_rates_fault() -> None:
    draft = classifier().diverges().change_optimizer("SGD", lr=5.0)
    draft.of_param("*.weight", update_ratio=0.9)
    assert blamed(draft).cause == "lr_too_high"
    assert "loss_reduction_scale" not in accused(draft)


def test_a_mean_next_to_an_undivided_sum_is_drowned() -> None:
    best = convict(mixed(), "loss_reduction_scale")
    assert "counts 2.51e+04 times a mean" in texts(best)


def test_a_mean_next_to_a_sum_that_is_divided_is_sound() -> None:
    assert "loss_reduction_scale" not in accused(mixed(factor=1 / (784 * BATCH)))
    assert "loss_reduction_scale" not in accused(mixed(factor=None))


def test_a_small_sum_of_penalties_is_sound() -> None:
    assert "loss_reduction_scale" not in accused(mixed(entries=4))


def test_without_a_loss_its_reduction_is_not_judged() -> None:
    draft = summed()
    draft.losses = []
    assert "loss_reduction_scale" not in accused(draft)


def test_a_mean_that_is_divided_again_is_too_small() -> None:
    parts = (LossPart("cross_entropy", "mean", 1 / 1024, BATCH),)
    draft = classifier().change_loss(parts=parts).stays(2.3 / 1024)
    draft.of_param("*.weight", update_ratio=1e-6)
    best = convict(draft, "loss_reduction_scale")
    assert "scaled by 0.000977" in texts(best)
    adaptive = draft.change_optimizer("Adam", lr=1e-3)
    assert "loss_reduction_scale" not in accused(adaptive)


def accumulated(passes: int, factor: float = 1.0) -> Draft:
    """Several backward passes in each step of a run that learns nothing."""
    part = LossPart("cross_entropy", "mean", factor, 32)
    draft = classifier().stays().change_loss(parts=(part,))
    draft.of_param("*.weight", update_ratio=0.3)
    draft.put(Kind.RUN, "", m.R_BACKWARDS, np.full(draft.steps, float(passes)))
    return draft.change_optimizer("SGD", lr=0.3)


def test_batches_that_are_added_up_undivided_scale_the_step() -> None:
    best = convict(accumulated(16), "loss_reduction_scale")
    assert "the gradients of 16 batches are added up in a step" in texts(best)


@pytest.mark.parametrize(("passes", "factor"), [(1, 1.0), (2, 1.0), (16, 1 / 16)])
def test_few_or_divided_batches_do_not(passes: int, factor: float) -> None:
    assert "loss_reduction_scale" not in accused(accumulated(passes, factor))


def test_batches_of_closures_are_no_accumulation() -> None:
    assert "loss_reduction_scale" not in accused(accumulated(16).change_optimizer("LBFGS", lr=1.0))


def collapsed(share: float = 0.05, factor: float = 8.0, features: int = 64) -> Draft:
    """An autoencoder: a mean over entries, a sum over the code, and predictions that differ so."""
    parts = (
        LossPart("mse", "mean", factor, features * BATCH),
        LossPart("custom", "mean_of_sums", -0.5, BATCH),
    )
    draft = regression().falls(1.5, 0.6).change_loss(parts=parts, batch=BATCH)
    draft.of_batch("target", mean=0.0, std=1.0, sample_std=1.0)
    return draft.put(Kind.LOSS, "prediction", "prediction_sample_std", share)


def test_a_mean_beside_a_sum_is_drowned_where_all_predictions_are_one() -> None:
    best = convict(collapsed(), "loss_reduction_scale")
    assert "a mean over 64 entries of a sample, another a sum" in texts(best)


@pytest.mark.parametrize(
    "draft",
    [
        collapsed(share=0.8),
        collapsed(factor=64.0),
        collapsed(features=2),
        collapsed().without("prediction_sample_std"),
    ],
)
def test_a_mean_beside_a_sum_may_be_meant(draft: Draft) -> None:
    assert "loss_reduction_scale" not in accused(draft)
