"""Data that come in an order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Series
from neuraldbg.core.trajectory import trajectory

from ..records import Draft, classifier, regression
from .blame import accused, convict, texts

LOOKS = 50


def ordered() -> Draft:
    """Batches of one class each, class after class."""
    draft = classifier().stays()
    classes = np.repeat(np.arange(10.0), 5)
    return draft.of_batch(
        "target", mean=classes, low=classes, high=classes, std=0.0, majority=1.0, distinct=1.0,
        entropy=0.0, transitions=0.0,
    )  # fmt: skip


# -- order ---------------------------------------------------------------------------------


def test_batches_of_one_class_each_are_not_shuffled() -> None:
    best = convict(ordered(), "unshuffled_data", where="target")
    assert "100% of the labels of a batch are one class" in texts(best)
    assert "Shuffle" in best.repair


def test_shuffled_batches_are_not_blamed() -> None:
    assert "unshuffled_data" not in accused(classifier().stays())


def test_batches_of_two_samples_are_often_pure() -> None:
    assert "unshuffled_data" not in accused(ordered().of_batch("target", size=2.0))


def test_a_few_batches_have_no_order() -> None:
    draft = ordered()
    few = np.full(LOOKS, np.nan)
    few[:9] = 1.0
    assert "unshuffled_data" not in accused(draft.of_batch("target", majority=few))


def test_targets_that_differ_between_batches_are_not_constant() -> None:
    assert "degenerate_targets" not in accused(ordered())
    assert "degenerate_targets" not in accused(classifier().stays())


# -- targets of a regression in order --------------------------------------------------------


def swinging(turns: float, noise: float = 0.0) -> Draft:
    """Targets that go round and round, and hardly differ inside a batch; the loss stays high."""
    draft = regression().falls(1.0, 0.6)
    where = np.linspace(0, 2 * math.pi * turns, LOOKS)
    jitter = noise * np.random.default_rng(0).normal(size=LOOKS)
    draft.put(Kind.BATCH, "target", "mean", np.sin(where) + jitter)
    channel = next(c for c in draft.channels if c.metric == "mean" and c.name == "target")
    draft.channels[channel] = Series(np.arange(LOOKS, dtype=np.int64), np.sin(where) + jitter)
    return draft.of_batch("target", std=0.05, sample_std=0.05)


def test_targets_that_go_round_batch_after_batch_are_in_order() -> None:
    best = convict(swinging(2), "unshuffled_data", where="target")
    assert "swing between low and high 3 times" in texts(best)


def test_targets_that_drift_are_those_of_a_critic() -> None:
    assert "unshuffled_data" not in accused(swinging(0.25))


def test_targets_that_jump_from_batch_to_batch_are_not_in_order() -> None:
    assert "unshuffled_data" not in accused(swinging(2, noise=3.0))


def test_batches_that_differ_more_than_their_samples_do_not_tell_the_chance_level() -> None:
    assert trajectory(regression().build()).chance is not None
    assert trajectory(swinging(2).build()).chance is None


def test_batches_of_ones_and_of_zeros_for_a_critic_are_in_no_order() -> None:
    draft = ordered()
    draft.losses.append(replace(draft.losses[0], index=1))
    assert "unshuffled_data" not in accused(draft)


def test_targets_that_a_model_makes_swing_with_it() -> None:
    draft = swinging(2).notes(backwards=200, no_grad_forwards=200)
    assert "unshuffled_data" not in accused(draft)


# -- inputs in order -------------------------------------------------------------------------


def sharded(epochs: int = 2, **notes: object) -> Draft:
    """Five shards, one after another in each epoch, that their largest token tells apart."""
    draft = classifier().falls(2.7, 1.9).notes(**notes)
    shards = np.repeat(np.tile(np.arange(13.0, 18.0), epochs), LOOKS // (5 * epochs) + 1)[:LOOKS]
    return draft.of_batch("input", high=shards)


def test_inputs_of_one_file_after_another_are_in_order() -> None:
    best = convict(sharded(), "unshuffled_data", where="input")
    assert "the largest entry of the inputs hardly differs" in texts(best)


def test_inputs_that_change_but_never_come_again_are_a_course() -> None:
    assert "unshuffled_data" not in accused(sharded(epochs=1))


def test_observations_change_with_what_a_policy_does() -> None:
    draft = sharded(backwards=200, no_grad_forwards=200)
    assert "unshuffled_data" not in accused(draft)


def test_samples_of_an_energy_follow_the_energy() -> None:
    swings = 0.1 * np.sin(np.arange(200.0))
    draft = sharded().change_loss(kind="custom", parts=()).loses(swings)
    assert "unshuffled_data" not in accused(draft)


def test_inputs_in_order_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(sharded().falls(2.3, 0.1)) == []


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_inputs_have_no_order(seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(13, 18, LOOKS)
    assert "unshuffled_data" not in accused(sharded().of_batch("input", high=drawn.astype(float)))


# -- a loss that leaps with each change ------------------------------------------------------


def forgetting(leaps: int = 3, height: float = 5.0, lasts: int = 20) -> Draft:
    """Sources that come once, one after another: at each the loss begins anew."""
    draft = sharded(epochs=1)
    losses = np.full(draft.steps, 0.8)
    losses[:20] = np.geomspace(2.3, 0.8, 20)
    for at in np.linspace(0, draft.steps, leaps + 2).astype(int)[1:-1]:
        losses[at : at + lasts] = np.geomspace(height, 0.8, lasts)
    return draft.loses(losses)


def test_sources_one_after_another_are_in_order_where_each_is_forgotten() -> None:
    best = convict(forgetting(), "unshuffled_data", where="input")
    assert "3 times the loss leaps above 2.29" in texts(best)


def test_a_single_leap_is_a_change_and_no_order() -> None:
    assert "unshuffled_data" not in accused(forgetting(leaps=1))


def test_leaps_below_what_nothing_learnt_gives_are_no_forgetting() -> None:
    assert "unshuffled_data" not in accused(forgetting(height=1.6))


def test_spikes_of_one_batch_each_are_no_forgetting() -> None:
    assert "unshuffled_data" not in accused(forgetting(lasts=2))


def test_leaps_without_a_change_of_the_inputs_have_another_cause() -> None:
    drawn = np.random.default_rng(0).integers(13, 18, LOOKS).astype(float)
    assert "unshuffled_data" not in accused(forgetting().of_batch("input", high=drawn))
