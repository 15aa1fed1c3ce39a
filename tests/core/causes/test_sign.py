"""The sign of the objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core.facts import LossFact, LossPart, TensorFact

from ..records import STEPS, Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def climbing() -> Draft:
    """Updates that point along the gradient."""
    return classifier().of_param("*.weight", update_align=-0.9)


def test_updates_along_the_gradient_maximise_the_loss() -> None:
    best = convict(climbing().diverges(), "wrong_update_sign")
    assert "along the gradient" in texts(best)


def test_a_negated_error_that_falls_below_zero_is_maximised() -> None:
    draft = climbing().change_loss(ops=("Neg", "NllLoss", "LogSoftmax"))
    best = convict(draft.loses(-np.geomspace(2.3, 1e4, STEPS)), "wrong_update_sign")
    assert "falls below zero" in texts(best)


@pytest.mark.parametrize("align", [0.9, 0.0, -0.3])
def test_updates_that_do_not_climb_are_not_blamed(align: float) -> None:
    draft = classifier().of_param("*.weight", update_align=align).diverges()
    assert "wrong_update_sign" not in accused(draft)


def test_a_negative_loss_of_ones_own_may_be_right() -> None:
    draft = classifier().change_loss(kind="custom", ops=("Neg", "Mean", "Mul"))
    assert accused(draft.loses(-np.geomspace(1, 100, STEPS))) == []


def test_a_high_rate_does_not_climb() -> None:
    draft = classifier().change_optimizer("SGD", lr=5.0).of_param("*.weight", update_ratio=0.9)
    assert "wrong_update_sign" not in accused(draft.diverges())


def test_a_rate_of_ascent_is_told_by_the_optimizers_setting() -> None:
    draft = classifier().stays().change_optimizer("SGD", lr=0.05, maximize=True)
    assert "maximize=True" in texts(blamed(draft))


def test_a_loss_of_ones_own_that_plunges_has_the_wrong_sign() -> None:
    draft = classifier().change_loss(kind="custom", ops=("Mean", "Mul"))
    assert blamed(draft.loses(-np.geomspace(1, 1e4, STEPS))).cause == "wrong_update_sign"
    sunk = np.concatenate([-np.geomspace(1, 1e9, 20), np.full(STEPS - 20, -1e9)])
    assert blamed(draft.loses(sunk)).cause == "wrong_update_sign"


def test_an_error_below_zero_has_the_wrong_sign_and_a_likelihood_of_scores_has_not() -> None:
    below = -np.geomspace(1, 50, STEPS)
    assert blamed(classifier().loses(below)).cause == "wrong_update_sign"
    assert "wrong_update_sign" not in accused(classifier().change_loss(kind="nll").loses(below))


def test_a_negative_term_among_others_is_no_wrong_sign() -> None:
    policy, critic = LossPart("custom", "mean", -1.0, 32), LossPart("mse", "mean", 0.5, 32)
    draft = classifier().falls(5.3, -0.5).change_loss(kind="mse", parts=(policy, critic))
    assert "wrong_update_sign" not in accused(draft)
    turned = replace(critic, factor=-0.5)
    convict(draft.change_loss(parts=(policy, turned)), "wrong_update_sign")


# -- reinforcement learning ------------------------------------------------------------------


def learner(factor: float, lean: float) -> Draft:
    """A policy gradient; its loss is no measure of success."""
    part = LossPart("policy", "mean", factor, 64, lean)
    draft = classifier().change_loss(kind="custom", parts=(part,), target=None)
    return draft.falls(0.3, -0.2)


@pytest.mark.parametrize("lean", [0.0, 1.0])
def test_a_policy_gradient_without_minus_sign_goes_the_wrong_way(lean: float) -> None:
    best = convict(learner(1.0, lean), "wrong_update_sign")
    assert "what brings reward becomes less likely" in texts(best)


def test_the_value_of_a_policys_objective_is_no_measure_of_success() -> None:
    """It rises as easily as it falls while the rewards grow."""
    rising = (
        learner(-1.0, 0.0).loses(np.linspace(-0.015, 0.11, STEPS)).change_module("fc2", calls=14)
    )
    assert accused(rising) == []


def test_rewards_alone_are_surer_than_advantages() -> None:
    sure = confidence(learner(1.0, 1.0), "wrong_update_sign")
    assert sure > confidence(learner(1.0, 0.0), "wrong_update_sign")


@pytest.mark.parametrize(("factor", "lean"), [(-1.0, 0.0), (-1.0, 1.0), (1.0, -1.0), (0.5, -0.8)])
def test_a_policy_gradient_with_minus_sign_or_costs_is_right(factor: float, lean: float) -> None:
    assert accused(learner(factor, lean)) == []


def actor_critic(factor: float, value: float = -1.0) -> Draft:
    """A critic that is fitted to targets, and an actor that follows its mean."""
    draft = classifier().change_loss(
        kind="mse", last_op="Addmm", target=TensorFact((32, 1), mean=value), parts=()
    )
    ops = ("Mean", "Addmm", "Relu", "T") if factor > 0 else ("Neg", "Mean", "Addmm", "Relu", "T")
    actor = LossFact(1, ops, parts=(LossPart("custom", "mean", factor, 32),))
    draft.losses = [*draft.losses, actor]
    return draft


def test_an_actor_that_minimises_its_critic_goes_the_wrong_way() -> None:
    best = convict(actor_critic(1.0), "wrong_update_sign")
    assert "led to what its critic values least" in texts(best)
    # Values above zero may be costs.
    assert confidence(actor_critic(1.0, 2.0), "wrong_update_sign") < best.confidence


def test_an_actor_that_maximises_its_critic_is_right() -> None:
    assert accused(actor_critic(-1.0)) == []


def test_a_mean_without_a_critic_is_none() -> None:
    draft = actor_critic(1.0)
    draft.losses = draft.losses[1:]
    assert "wrong_update_sign" not in accused(draft)


def inverted() -> Draft:
    """A loss that is smallest where the error is largest, and falls."""
    return classifier().falls(-30.0, -43.0).change_loss(kind="custom", maximised=True)


def test_a_ratio_of_signal_to_noise_that_is_minimised_is_the_wrong_way_round() -> None:
    best = convict(inverted(), "wrong_update_sign")
    assert "falls where the error in it grows" in texts(best)


def test_of_two_sides_one_may_make_errors_larger() -> None:
    draft = inverted()
    draft.losses.append(replace(draft.losses[0], index=1, maximised=False))
    assert "wrong_update_sign" not in accused(draft)


def test_a_negated_error_is_told_once() -> None:
    draft = inverted().change_loss(kind="mse", parts=(LossPart("mse", "mean", -1.0, 64),))
    assert len(blamed(draft).evidence) == 1
