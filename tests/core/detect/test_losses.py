"""Loss health."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.detect.losses import SPIKES, losses
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Kind

from ..records import STEPS, Draft, classifier, regression


def seen(draft: Draft) -> list[tuple[str, str, int]]:
    """Where, what, step of the events."""
    found = list(losses(draft.build()))
    assert all(e.kind == EventType.LOSS for e in found)
    return [(e.where, e.after, e.step) for e in found]


def spiking(*steps: int, height: float = 50.0) -> Draft:
    """A healthy loss with single losses far above it."""
    draft = classifier()
    values = draft.build().series(Kind.LOSS, "loss", "value").values.copy()
    values[list(steps)] = height
    return draft.loses(values)


def test_a_loss_that_falls_is_no_event() -> None:
    assert seen(classifier()) == []
    assert seen(regression()) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_loss_that_is_not_finite(bad: float) -> None:
    draft = classifier()
    values = draft.build().series(Kind.LOSS, "loss", "value").values.copy()
    values[120:] = bad
    found = [e for e in losses(draft.loses(values).build()) if e.after == "nonfinite"]
    assert [e.step for e in found] == [120]
    assert np.array_equal(found[0].metadata["value"], bad, equal_nan=True)  # type: ignore[arg-type]


def test_a_loss_that_grows_without_bound_diverges_once() -> None:
    found = [x for x in seen(classifier().diverges()) if x[1] == "diverging"]
    assert len(found) == 1
    assert 5 < found[0][2] < 60


def test_a_negative_loss_that_falls_does_not_diverge() -> None:
    draft = classifier().loses(-np.geomspace(1.0, 1e4, STEPS)).change_loss(kind="custom")
    assert seen(draft) == []


def test_a_loss_that_comes_back_up_to_where_it_began_does_not_diverge() -> None:
    values = np.concatenate([np.geomspace(2.3, 0.1, 100), np.geomspace(0.1, 2.3, 100)])
    assert "diverging" not in [x[1] for x in seen(classifier().loses(values))]


def test_a_loss_that_not_even_trebles_does_not_diverge() -> None:
    values = np.concatenate([np.full(100, 2.0), np.full(100, 4.0)])
    assert "diverging" not in [x[1] for x in seen(classifier().loses(values))]


def test_a_single_huge_loss_does_not_diverge() -> None:
    assert "diverging" not in [x[1] for x in seen(spiking(100, height=1e6))]


def test_single_losses_far_above_their_neighbours_are_spikes() -> None:
    assert seen(spiking(60, 140)) == [("loss", "spiking", 60), ("loss", "spiking", 140)]


def test_the_noise_of_batches_is_no_spike() -> None:
    noise = np.random.default_rng(1).lognormal(0.0, 0.4, STEPS)
    assert "spiking" not in [x[1] for x in seen(classifier().loses(0.5 * noise))]


def test_only_the_first_few_spikes_are_told() -> None:
    found = seen(spiking(*range(20, 180, 12)))
    assert len(found) == SPIKES


def test_the_first_losses_are_no_spikes() -> None:
    assert seen(spiking(0, 1)) == []


def test_a_loss_at_the_level_of_a_guess_is_stalled() -> None:
    assert seen(classifier().stays(2.29)) == [("loss", "stalled", 0)]


def test_without_a_chance_level_a_loss_that_does_not_fall_is_stalled() -> None:
    draft = classifier().change_loss(kind="custom").stays(7.0)
    assert seen(draft) == [("loss", "stalled", 0)]
    assert seen(draft.falls(7.0, 6.0)) == []


def test_short_runs_are_not_judged() -> None:
    assert seen(classifier(steps=9).diverges()) == []
    assert seen(classifier(steps=19).stays(2.29)) == []


def test_every_loss_is_judged_by_its_own_name() -> None:
    draft = classifier().put(Kind.LOSS, "loss.1", "value", np.full(STEPS, np.nan))
    draft.put(Kind.LOSS, "evaluation", "value", np.full(STEPS, 1.0))
    assert ("loss.1", "nonfinite", 0) in seen(draft)
    assert ("evaluation", "stalled", 0) in seen(draft)
