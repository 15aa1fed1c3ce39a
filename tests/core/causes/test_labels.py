"""The targets: scale, noise, balance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core.facts import Kind, LossPart, TensorFact
from neuraldbg.core.trajectory import trajectory

from ..records import BATCH, Draft, classifier, regression
from .blame import accused, blamed, confidence, convict, texts

LOOKS = 50


def unscaled(scale: float = 5e3) -> Draft:
    """Targets of a large scale; the run is stuck."""
    draft = regression().stays(scale**2)
    return draft.of_batch(
        "target",
        mean=scale,
        std=scale / 10,
        low=0.0,
        high=2 * scale,
        absmax=2 * scale,
        sample_std=0.1,
    )


def noisy(agreement: float = 0.01) -> Draft:
    """Sound updates, gradients that do not agree, a loss at the entropy of the labels."""
    return classifier().stays(2.29).of_param("*.weight", grad_cosine=agreement)


def imbalanced(majority: float = 0.98) -> Draft:
    """Labels of which nearly all are of one class; the loss stays at their entropy."""
    entropy = -majority * math.log(majority) - (1 - majority) * math.log(1 - majority)
    of_batch = entropy - 1 / (2 * BATCH)  # what a batch of that size shows of it
    draft = classifier().of_batch(
        "target", majority=majority, distinct=2.0, entropy=of_batch, mean=0.02, std=0.14
    )
    return draft.stays(entropy)


# -- scale ---------------------------------------------------------------------------------


def test_targets_of_thousands_are_not_scaled() -> None:
    best = convict(unscaled(), "unscaled_targets")
    assert "the targets have a scale of" in texts(best)


def test_standardised_targets_are_not_blamed() -> None:
    assert "unscaled_targets" not in accused(regression().stays(1.0))


def test_large_targets_that_the_run_learns_are_no_fault() -> None:
    assert accused(unscaled(50.0).falls(25.0, 1.0)) == []


def test_class_indices_have_no_scale() -> None:
    draft = classifier().stays().of_batch("target", mean=500.0, std=300.0)
    assert "unscaled_targets" not in accused(draft)


# -- noise ---------------------------------------------------------------------------------


def test_labels_that_gradients_do_not_agree_on_are_noise() -> None:
    best = convict(noisy(), "label_noise")
    assert "hardly agree (cosine 0.01)" in texts(best)
    assert "no layer is dead, saturated or cut off" in texts(best)
    assert "at the entropy of the labels" in texts(best)


def test_gradients_that_agree_speak_against_noise() -> None:
    assert confidence(noisy(0.6), "label_noise") < confidence(noisy(), "label_noise")


def test_a_dead_layer_speaks_against_noise() -> None:
    dead = noisy().of_module("act1", act_negative_units=1.0)
    assert confidence(dead, "label_noise") < confidence(noisy(), "label_noise")


def test_a_first_loss_far_from_the_entropy_speaks_against_noise() -> None:
    far = noisy()
    loss = np.full(far.steps, 2.29)
    loss[0] = 5.0
    assert confidence(far.loses(loss), "label_noise") < confidence(noisy(), "label_noise")


def test_tiny_updates_are_not_the_labels() -> None:
    draft = noisy().change_optimizer("SGD", lr=1e-6).of_param("*.weight", update_ratio=1e-7)
    assert blamed(draft).cause == "lr_too_low"
    assert "label_noise" not in accused(draft)


def test_a_run_that_learns_has_learnable_labels() -> None:
    assert accused(noisy().falls(2.3, 0.1)) == []


def test_without_gradients_or_a_chance_level_noise_is_not_claimed() -> None:
    assert "label_noise" not in accused(noisy().without("grad_cosine"))
    assert "label_noise" not in accused(noisy().without("entropy"))


# -- constant ------------------------------------------------------------------------------


def test_targets_that_never_change_are_degenerate() -> None:
    draft = regression().of_batch(
        "target", std=0.0, mean=3.0, low=3.0, high=3.0, absmax=3.0, sample_std=0.0
    )
    best = convict(draft, "degenerate_targets", where="target")
    assert "every target of 50 batches is 3" in texts(best)


def test_one_label_in_every_batch_is_degenerate() -> None:
    draft = classifier().of_batch(
        "target", std=1e-3, low=2.0, high=2.0, distinct=1.0, majority=1.0, entropy=0.0
    )
    best = convict(draft, "degenerate_targets", where="target")
    assert "one and the same label" in texts(best)


def test_two_batches_are_too_few_to_call_targets_constant() -> None:
    draft = regression()
    few = np.full(LOOKS, np.nan)
    few[:2] = 0.0
    assert accused(draft.of_batch("target", std=few, low=3.0, high=3.0)) == []


def test_targets_whose_range_was_not_read_are_not_called_constant() -> None:
    draft = regression().of_batch("target", std=0.0).without("low", "high")
    assert "degenerate_targets" not in accused(draft)


# -- balance -------------------------------------------------------------------------------


def test_a_class_that_holds_nearly_all_labels_dominates() -> None:
    best = convict(imbalanced(), "class_imbalance", where="target")
    assert "98% of the labels" in texts(best)


@pytest.mark.parametrize("majority", [0.5, 0.89])
def test_a_moderate_majority_is_not_blamed(majority: float) -> None:
    assert "class_imbalance" not in accused(imbalanced(majority))


def test_the_rare_class_need_not_be_in_every_batch() -> None:
    draft = imbalanced(0.99).of_batch("target", distinct=[1.0] * 40 + [2.0] * 10)
    convict(draft, "class_imbalance", where="target")


def test_a_rare_class_that_is_learnt_is_no_fault() -> None:
    assert accused(imbalanced().falls(0.1, 0.01)) == []


def test_an_imbalance_counts_less_without_a_chance_level() -> None:
    draft = imbalanced().change_loss(kind="custom")
    assert confidence(draft, "class_imbalance") < confidence(imbalanced(), "class_imbalance")


def test_a_single_class_is_no_imbalance() -> None:
    draft = imbalanced().of_batch("target", distinct=1.0)
    assert "class_imbalance" not in accused(draft)


def mask(high: float) -> Draft:
    """Binary masks with few ones, of which a third is learnt; the largest logit."""
    rare = 0.02
    level = -rare * math.log(rare) - (1 - rare) * math.log(1 - rare)
    asked = TensorFact((8, 1, 32, 32), low=0.0, high=1.0, integral=True, distinct=2)
    said = TensorFact((8, 1, 32, 32), low=-5.0, high=high)
    draft = classifier().change_loss(kind="bce_with_logits", target=asked, prediction=said)
    draft.of_batch("target", mean=rare, std=0.14).without("majority", "distinct", "entropy")
    return draft.falls(level, 0.65 * level)


def test_a_mask_that_is_never_predicted_is_an_imbalance() -> None:
    best = convict(mask(-0.5), "class_imbalance", where="target")
    assert "98% of the labels" in texts(best)
    assert "not one prediction" in texts(best)


def test_a_mask_that_is_predicted_where_it_belongs_is_no_fault() -> None:
    assert "class_imbalance" not in accused(mask(2.0))


def test_imbalanced_but_shuffled_batches_are_not_in_order() -> None:
    assert "unshuffled_data" not in accused(imbalanced())


def test_healthy_labels_are_balanced_and_shuffled() -> None:
    record = classifier().build()
    majority = record.series("batch", "target", "majority")  # type: ignore[arg-type]
    assert majority.median() < 0.5
    assert BATCH >= 4


def test_classes_that_are_weighted_already_are_no_fault() -> None:
    draft = classifier().of_batch("target", majority=0.97, distinct=2.0).stays()
    assert "class_imbalance" in accused(draft)
    assert "class_imbalance" not in accused(draft.change_loss(weighted=True))


# -- what looks like a fault of the targets ------------------------------------------------


def zero_targets(spread: float, loss: float) -> Draft:
    """Every target is zero; the model's outputs differ by `spread` at a loss of `loss`."""
    draft = regression().falls(1.0, loss)
    draft.of_batch("target", mean=0.0, std=0.0, low=0.0, high=0.0, absmax=0.0, distinct=1.0)
    return draft.put(Kind.LOSS, "prediction", "prediction_sample_std", spread)


def test_the_last_looks_may_lie_far_before_the_end() -> None:
    """A busy machine is looked at early only: outputs of then against the loss of then."""
    draft = zero_targets(spread=0.8, loss=1e-3)
    draft.put(Kind.LOSS, "prediction", "prediction_sample_std", [0.8] * 5)
    draft.loses(np.geomspace(1.0, 1e-3, draft.steps))
    convict(draft, "degenerate_targets", where="target")


def test_a_residual_compared_with_zeros_has_no_degenerate_targets() -> None:
    assert accused(zero_targets(spread=0.8, loss=1e-3)) == []


def test_outputs_that_follow_constant_targets_are_degenerate() -> None:
    convict(zero_targets(spread=0.02, loss=1e-3), "degenerate_targets", where="target")


def test_constant_masks_are_degenerate_in_a_sum_of_which_nothing_is_left() -> None:
    """As where masks were rounded to zero, under a cross-entropy and an overlap."""
    draft = zero_targets(1e-6, 1e-4).loses(np.geomspace(1.5, 1e-4, 200))
    parts = (LossPart("bce_with_logits", "mean", 1.0, 64), LossPart("rsub", "none", 1.0, 1))
    draft.change_loss(kind="bce_with_logits", parts=parts)
    convict(draft, "degenerate_targets", where="target")
    assert accused(draft.falls(1.5, 0.4)) == []


def test_weights_in_the_loss_remedy_the_imbalance() -> None:
    draft = imbalanced().falls(1.76, 0.7)
    assert accused(draft.change_loss(weighted=True)) == []


def test_a_weighted_loss_has_no_level_that_the_labels_alone_tell() -> None:
    draft = imbalanced().change_loss(weighted=True)
    assert trajectory(draft.build()).chance is None


# -- faint ---------------------------------------------------------------------------------


def masks(top: float) -> Draft:
    """Yes-or-no targets of which the largest is `top`."""
    draft = classifier().change_loss(kind="bce_with_logits")
    return draft.of_batch("target", low=0.0, high=top, absmax=top, mean=0.2 * top, std=0.4 * top)


def test_masks_that_were_scaled_down_hold_no_yes() -> None:
    best = convict(masks(1 / 255), "degenerate_targets", where="target", step=0)
    assert "a yes is 1" in texts(best)


@pytest.mark.parametrize("top", [1.0, 0.9, 0.6])
def test_softened_labels_are_still_labels(top: float) -> None:
    assert "degenerate_targets" not in accused(masks(top))


def test_a_critic_that_is_beaten_has_no_noisy_labels() -> None:
    draft = noisy()
    assert "label_noise" in accused(draft)
    draft.losses.append(replace(draft.losses[0], index=1))
    assert "label_noise" not in accused(draft)


def test_a_loss_far_above_a_constant_guess_is_not_the_labels_doing() -> None:
    assert accused(noisy())[:1] == ["label_noise"]
    assert "label_noise" not in accused(noisy().stays(6.0))


def terms(*spreads: float | None, factor: float = 1.0) -> Draft:
    """A loss that adds up squared errors of targets that vary by so much."""
    parts = [LossPart("mse", "mean", 1.0, 32, spread=spreads[0])]
    parts += [LossPart("mse", "mean", factor, 32, spread=x) for x in spreads[1:]]
    return regression().falls(1e4, 1e3).change_loss(parts=tuple(parts))


def test_errors_in_different_units_are_not_added_up() -> None:
    best = convict(terms(166.0, 2e-5), "unscaled_targets")
    assert "vary by 166 and by 2e-05" in texts(best)


@pytest.mark.parametrize("spreads", [(3.0, 0.2), (166.0,), (166.0, 0.0), (166.0, None)])
def test_errors_of_like_units_may_be_added_up(spreads: tuple[float | None, ...]) -> None:
    assert accused(terms(*spreads)) == []


def test_a_factor_may_bring_units_together() -> None:
    assert accused(terms(100.0, 1e-2, factor=1e8)) == []
