"""What is learnt of the training samples and does not hold for others."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.facts import Kind

from ..records import Draft, classifier
from .blame import accused, confidence, convict, texts


def evaluated(held: np.ndarray) -> Draft:
    """A run whose training loss falls, with an evaluation loss every 20 steps."""
    return classifier().put(Kind.LOSS, "evaluation", "value", held)


def test_an_evaluation_loss_that_rises_while_the_training_loss_falls_is_overfitting() -> None:
    held = np.concatenate([np.geomspace(2.3, 0.5, 5), np.geomspace(0.5, 3.0, 6)[1:]])
    best = convict(evaluated(held), "overfitting", step=4)
    assert "rose from 0.5 at step 4 to" in texts(best)


def test_an_evaluation_loss_that_falls_along_is_no_overfitting() -> None:
    assert accused(evaluated(np.geomspace(2.3, 0.2, 10))) == []


def test_an_evaluation_loss_that_levels_off_is_no_overfitting() -> None:
    held = np.concatenate([np.geomspace(2.3, 0.5, 5), np.full(5, 0.51)])
    assert accused(evaluated(held)) == []


def test_a_last_evaluation_just_above_the_best_is_noise() -> None:
    assert accused(evaluated(np.array([2.3, 1.0, 0.7, 0.6, 0.5, 0.53]))) == []


def test_where_training_does_not_learn_either_it_is_no_overfitting() -> None:
    held = np.concatenate([np.geomspace(2.3, 0.5, 5), np.geomspace(0.5, 3.0, 5)])
    assert "overfitting" not in accused(evaluated(held).stays())


def test_three_evaluations_are_too_few() -> None:
    assert accused(evaluated(np.array([2.0, 0.5, 3.0]))) == []


def test_one_evaluation_at_the_end_is_enough_where_nothing_of_it_is_learnt() -> None:
    best = convict(evaluated(np.array([np.nan, 2.4])), "overfitting", step=1)
    assert "by heart" in best.summary


def test_an_evaluation_before_the_first_step_says_nothing_of_training() -> None:
    assert accused(evaluated(np.array([2.4]))) == []


@pytest.mark.parametrize("held", [30.0, 1.5, 0.2])
def test_one_evaluation_of_another_unit_or_below_a_guess_is_none(held: float) -> None:
    assert accused(evaluated(np.array([np.nan, held]))) == []


def test_an_evaluation_loss_near_the_training_loss_speaks_against_it() -> None:
    held = np.array([0.3, 0.1, 0.05, 0.06, 0.08, 0.1])
    far = held * 20
    assert confidence(evaluated(held), "overfitting") < confidence(evaluated(far), "overfitting")


def test_an_evaluation_loss_that_stays_near_chance_while_training_ends_is_overfitting() -> None:
    """As where the factors of a matrix hold the ratings themselves."""
    held = np.array([2.2, 2.1, 2.0, 1.95, 1.96, 1.96])
    best = convict(evaluated(held), "overfitting", step=3)
    assert "holds for the training samples only" in texts(best)
    assert "overfitting" not in accused(evaluated(held).falls(2.3, 1.2))


def test_a_gap_below_a_constant_guess_is_usual() -> None:
    assert accused(evaluated(np.array([2.2, 1.4, 1.1, 1.0, 1.0, 1.0]))) == []
