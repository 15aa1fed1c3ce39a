"""The loss of a constant guess and that of a perfect one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

from neuraldbg.core.chance import chance_level, floor_level
from neuraldbg.core.facts import LossPart, TensorFact
from neuraldbg.core.trajectory import trajectory

from .records import BATCH, CLASSES, Draft, classifier, regression


def test_classes_are_guessed_at_the_entropy_of_the_labels() -> None:
    labels = np.random.default_rng(0).integers(0, CLASSES, (200, BATCH))
    shares = [np.bincount(row, minlength=CLASSES) / BATCH for row in labels]
    entropy = np.median([-(p[p > 0] * np.log(p[p > 0])).sum() for p in shares])
    draft = classifier().of_batch("target", entropy=float(entropy), distinct=float(CLASSES))
    assert chance_level(draft.build()) == pytest.approx(math.log(CLASSES), rel=0.02)


def test_quantities_are_guessed_at_their_mean_square_around_the_mean() -> None:
    draft = regression().of_batch("target", mean=3.0, std=4.0, sample_std=0.8)
    assert chance_level(draft.build()) == pytest.approx(16.0)


def test_two_outcomes_are_guessed_at_their_binary_entropy() -> None:
    draft = classifier().change_loss(kind="bce").of_batch("target", mean=0.25)
    assert chance_level(draft.build()) == pytest.approx(0.5623, abs=1e-3)


def weighted(draft: Draft) -> Draft:
    """The loss with another part."""
    return draft.change_loss(parts=(LossPart("mse", "mean"), LossPart("l1", "mean")))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.change_loss(kind="custom"),
        lambda d: d.change_loss(reduction="sum", parts=()),
        lambda d: d.change_loss(parts=(LossPart("cross_entropy", "sum", 1.0),)),
        lambda d: d.change_loss(parts=(LossPart("cross_entropy", "normalised_sum", 1.0),)),
        lambda d: d.change_loss(target=None),
        lambda d: d.change_loss(parts=(LossPart("cross_entropy", "mean", None),)),
        lambda d: d.change_loss(parts=(LossPart("cross_entropy", "mean", -1.0),)),
        lambda d: d.of_batch("target", entropy=0.0, distinct=1.0),
        lambda d: d.without("entropy"),
        lambda d: d.change_loss(kind="bce").of_batch("target", mean=0.0),
        lambda d: d.change_loss(kind="mse").of_batch("target", std=0.0, mean=0.0),
        weighted,
    ],
)
def test_where_loss_and_targets_do_not_tell_it_there_is_no_chance_level(
    change: Callable[[Draft], Draft],
) -> None:
    record = change(classifier()).build()
    assert chance_level(record) is None
    assert trajectory(record).gain is None


def test_a_weighted_loss_has_a_weighted_level() -> None:
    whole = chance_level(classifier().build())
    half = classifier().change_loss(parts=(LossPart("cross_entropy", "mean", 0.5),))
    assert whole is not None
    assert chance_level(half.build()) == pytest.approx(whole / 2)


def test_a_target_without_a_shape_counts_as_one_sample() -> None:
    draft = classifier().change_loss(target=TensorFact())
    assert chance_level(draft.build()) == pytest.approx(2.15 + (CLASSES - 1) / 2)


@pytest.mark.parametrize("name", ["loss.1", "evaluation", "loss.x", ""])
def test_a_loss_of_which_nothing_is_known_has_no_chance_level(name: str) -> None:
    assert chance_level(classifier().build(), name) is None


def test_the_second_loss_has_a_level_of_its_own() -> None:
    draft = classifier()
    draft.losses += regression().losses
    draft.losses[1] = type(draft.losses[1])(index=1, kind="bce")
    draft.of_batch("target", mean=0.5)
    assert chance_level(draft.build(), "loss.1") == pytest.approx(math.log(2))


# -- sums over features, and divergences ------------------------------------------------------


def summed(part: LossPart, *further: LossPart) -> Draft:
    """Targets of 30 features of variance 4, with this as (the first term of) the loss."""
    target = TensorFact((BATCH, 30), "float32", -6.0, 6.0, 0.0, 2.0, distinct=BATCH)
    draft = regression().change_loss(target=target, parts=(part, *further))
    return draft.of_batch("target", mean=0.0, std=2.0, sample_std=1.0)


@pytest.mark.parametrize(
    ("part", "level"),
    [
        (LossPart("mse", "mean", 1.0, BATCH * 30), 4.0),
        (LossPart("custom", "mean_of_sums", 1.0, BATCH), 120.0),
        (LossPart("mse", "normalised_sum", 0.5, BATCH * 30, count=BATCH), 60.0),
        (LossPart("mse", "normalised_sum", 1.0, BATCH * 30, count=BATCH * 30), 4.0),
        (LossPart("mse", "normalised_sum", 1.0, BATCH * 30, count=BATCH * 3), 40.0),
        (LossPart("custom", "normalised_sum", 1.0, BATCH * 30, count=BATCH), 120.0),
        (LossPart("custom", "normalised_sum", 1.0, BATCH * 30, count=417.0), 4.0),
    ],
)
@pytest.mark.parametrize("reduction", ["sum", "mean_of_sums"])
def test_features_that_are_added_up_are_guessed_together(
    part: LossPart, level: float, reduction: str
) -> None:
    code = LossPart("divergence", reduction, 0.5, BATCH)
    for draft in (summed(part), summed(part, code), summed(code, part)):
        assert chance_level(draft.build()) == pytest.approx(level)


# -- smoothed labels ---------------------------------------------------------------------------


def soft(shares: list[float], smoothing: float) -> Draft:
    """Labels that come with these shares, a part of each spread over all classes."""
    entropy = -sum(p * math.log(p) for p in shares if p > 0)
    part = LossPart("nll", "mean", 1.0, BATCH, smoothing=smoothing, classes=len(shares))
    kinds = float(sum(p > 0 for p in shares))
    draft = classifier().change_loss(parts=(part,), target=TensorFact((100_000,), "int64"))
    return draft.of_batch("target", entropy=entropy, distinct=kinds, majority=max(shares))


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.7, 0.1, 0.1, 0.1], [0.9, 0.1], [1.0, 0.0, 0.0]])
@pytest.mark.parametrize("smoothing", [0.05, 0.2])
def test_smoothed_labels_raise_the_floor_and_the_guess(
    shares: list[float], smoothing: float
) -> None:
    """Against torch: the shares as logits are the best guess, the label itself the best answer."""
    labels = torch.arange(len(shares))
    mixed = (1 - smoothing) * torch.tensor(shares) + smoothing / len(shares)
    guess = functional.cross_entropy(
        mixed.log().expand(len(shares), -1), labels, label_smoothing=smoothing, reduction="none"
    )
    sure = (1 - smoothing) * torch.eye(len(shares)) + smoothing / len(shares)
    answer = functional.cross_entropy(sure.log(), labels, label_smoothing=smoothing)
    record = soft(shares, smoothing).build()
    assert floor_level(record) == pytest.approx(float(answer), rel=1e-3)
    if max(shares) < 1:
        expected = float((torch.tensor(shares) * guess).sum())
        assert chance_level(record) == pytest.approx(expected, rel=1e-3)


def test_what_is_learnt_of_smoothed_labels_is_measured_from_their_floor() -> None:
    draft = soft([0.25] * 4, 0.2)
    floor = floor_level(draft.build())
    gain = trajectory(draft.falls(math.log(4), floor).build()).gain
    assert gain == pytest.approx(1.0, abs=0.1)
    assert floor > 0.5


def test_labels_that_are_not_smoothed_have_no_floor() -> None:
    assert floor_level(classifier().build()) == 0.0
    assert floor_level(classifier().build(), "loss.7") == 0.0
