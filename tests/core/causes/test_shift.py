"""Data that changes within a run, or from training to evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.causes.shift import change_point
from neuraldbg.core.facts import Kind

from ..records import EVERY, STEPS, Draft, classifier
from .blame import accused, confidence, convict, texts

LOOKS = STEPS // EVERY


def shifted(look: int = 25, by: float = 3.0) -> Draft:
    """Inputs whose mean moves; the loss goes back to where it began."""
    draft = classifier()
    mean = draft.build().series(*BATCH_MEAN).values.copy()
    mean[look:] += by
    loss = draft.build().series(*LOSS).values.copy()
    loss[look * EVERY :] = 2.4
    return draft.of_batch("input", mean=mean).loses(loss)


LOSS = next(c for c in classifier().channels if c.metric == "value")
BATCH_MEAN = next(c for c in classifier().channels if c.name == "input" and c.metric == "mean")


def test_where_models_feed_each_other_their_inputs_may_change() -> None:
    draft = shifted()
    draft.module("critic", "Critic", leaf=False).change_module("critic", caller=None)
    assert "distribution_shift" not in accused(draft)


def test_inputs_that_change_within_the_run_are_found_at_their_step() -> None:
    best = convict(shifted(), "distribution_shift", where="input", step=100)
    assert "the mean of the input moves by" in texts(best)


def test_a_change_of_spread_is_one_too() -> None:
    draft = shifted(by=0.0)
    spread = np.full(LOOKS, 1.0)
    spread[25:] = 8.0
    best = convict(
        draft.of_batch("input", std=spread), "distribution_shift", where="input", step=100
    )
    assert "the spread of the input" in texts(best)


def test_a_change_that_the_loss_does_not_mind_is_no_fault() -> None:
    assert accused(shifted().falls(2.3, 0.1)) == []


def test_a_small_drift_is_no_change() -> None:
    assert "distribution_shift" not in accused(shifted(by=0.1))


def test_a_change_within_the_noise_of_the_batches_is_none() -> None:
    noise = np.random.default_rng(2).normal(0.0, 0.8, LOOKS)
    noise[25:] += 0.9
    assert "distribution_shift" not in accused(shifted().of_batch("input", mean=noise))


def test_a_short_run_is_not_searched_for_changes() -> None:
    draft = shifted()
    draft.channels[BATCH_MEAN] = draft.channels[BATCH_MEAN].between(0, 39 * EVERY - 1)
    assert confidence(draft, "distribution_shift") == 0.0


def test_the_change_point_is_where_the_medians_differ_most() -> None:
    values = np.concatenate([np.zeros(60), np.full(40, 5.0)])
    assert change_point(values) == (60, 5.0)


# -- the same again ------------------------------------------------------------------------


def evaluated(mean: float, std: float, loss: float | None = 4.0) -> Draft:
    """A run that learns, and is evaluated on an input of this mean and spread."""
    draft = classifier()
    for metric, value in (("mean", mean), ("std", std)):
        draft.put(Kind.BATCH, "evaluation", metric, value)
    return draft if loss is None else draft.put(Kind.LOSS, "evaluation", "value", loss)


@pytest.mark.parametrize(("mean", "std"), [(0.35, 0.1), (5.0, 1.0), (0.0, 40.0)])
def test_an_evaluation_that_is_prepared_in_another_way_is_told(mean: float, std: float) -> None:
    best = convict(evaluated(mean, std), "distribution_shift", where="input", step=None)
    assert "the input of evaluation has a mean" in texts(best)
    assert "same preparation" in best.repair


def test_raw_inputs_in_evaluation_are_told_where_its_loss_is_not_seen() -> None:
    convict(evaluated(37.0, 46.0, loss=None), "distribution_shift", where="input", step=None)
    assert accused(evaluated(2.5, 1.0, loss=None)) == []


def test_an_evaluation_that_comes_out_well_is_prepared_well_enough() -> None:
    assert accused(evaluated(0.35, 0.1, loss=0.1)) == []


def test_an_evaluation_whose_outcome_was_not_seen_is_not_judged() -> None:
    assert accused(evaluated(0.35, 0.1, loss=None)) == []


def test_an_evaluation_of_alike_inputs_is_sound() -> None:
    assert "distribution_shift" not in accused(evaluated(0.3, 0.8))


def two_trainings() -> Draft:
    """The same run as two trainings, of which the second begins where the data change."""
    draft, at = shifted(), 25 * EVERY
    losses = draft.channels.pop(LOSS)
    draft.channels[LOSS] = losses.between(0, at - 1)
    draft.channels[LOSS._replace(name="loss.1")] = losses.between(at, STEPS)
    return draft


def test_data_that_change_where_a_later_training_begins_are_its_own() -> None:
    assert "distribution_shift" in accused(shifted())
    assert "distribution_shift" not in accused(two_trainings())


def test_a_change_within_the_run_is_told_before_one_from_training_to_evaluation() -> None:
    draft = shifted()
    for metric, value in (("mean", 40.0), ("std", 1.0)):
        draft.put(Kind.BATCH, "evaluation", metric, value)
    convict(draft, "distribution_shift", where="input", step=100)
