"""The input: scale, missing values, outliers, change."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.facts import LossPart, TensorFact

from ..records import BATCH, CLASSES, EVERY, Draft, classifier
from .blame import accused, blamed, confidence, convict, texts

LOOKS = 50


def raw(scale: float = 5e3) -> Draft:
    """Raw features of a large scale; the run is stuck."""
    draft = classifier().stays(40.0).of_batch("input", feature_rms=scale, feature_spread=200.0)
    return draft.of_module("fc1", in_absmax=3 * scale)


def missing(look: int = 10, name: str = "input") -> Draft:
    """Batches with NaN entries from a look on; the loss follows."""
    bad = np.zeros(LOOKS)
    bad[look:] = 3.0
    return classifier().breaks(look * EVERY).of_batch(name, nonfinite=bad)


def corrupted(look: int = 20, size: float = 4e4) -> Draft:
    """One batch with huge values, at which the loss jumps."""
    largest = np.full(LOOKS, 4.0)
    largest[look] = size
    draft = classifier().of_batch("input", absmax=largest)
    loss = draft.build().series(*LOSS).values.copy()
    loss[look * EVERY] = 500.0
    return draft.loses(loss)


LOSS = next(c for c in classifier().channels if c.metric == "value")


# -- scale ---------------------------------------------------------------------------------


def test_raw_features_are_not_normalised() -> None:
    best = convict(raw(), "unnormalized_input", where="fc1")
    assert "the largest feature of input has a scale of 5e+03" in texts(best)
    assert "200 times that of a typical feature" in texts(best)


def test_the_largest_of_several_inputs_counts() -> None:
    draft = raw().of_batch("input", feature_rms=1.0)
    draft.of_batch("input.1", feature_rms=5e3, feature_spread=1.0)
    assert "the largest feature of input.1" in texts(blamed(draft))


def test_targets_are_no_input() -> None:
    draft = classifier().stays(40.0).of_batch("target", feature_rms=5e3)
    assert "unnormalized_input" not in accused(draft)


def test_standardised_features_are_not_blamed() -> None:
    assert "unnormalized_input" not in accused(raw(3.0))


def test_raw_features_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(raw(30.0).falls(2.3, 0.1)) == []


def test_features_that_the_model_scales_down_itself_are_no_fault() -> None:
    assert "unnormalized_input" in accused(raw())
    assert "unnormalized_input" not in accused(raw().of_module("fc1", in_absmax=3.0))


def test_large_input_and_large_weights_are_told_apart() -> None:
    weights = classifier().stays(60.0).change_param("*.weight", init_rms=4.0)
    assert blamed(weights).cause == "init_too_large"
    assert "unnormalized_input" not in accused(weights)
    assert "init_too_large" not in accused(raw())


def test_large_input_and_a_high_rate_are_told_apart() -> None:
    rate = classifier().diverges().change_optimizer("SGD", lr=5.0)
    rate.of_param("*.weight", update_ratio=0.9)
    assert blamed(rate).cause == "lr_too_high"
    assert "unnormalized_input" not in accused(rate)


# -- not finite ----------------------------------------------------------------------------


def test_nan_in_the_input_is_found_at_its_step() -> None:
    best = convict(missing(), "nonfinite_input", where="input", step=40)
    assert "3 non-finite entries at step 40" in texts(best)
    assert "the loss is not finite from then on" in texts(best)


def test_nan_in_the_targets_is_found_too() -> None:
    convict(missing(name="target"), "nonfinite_input", where="target", step=40)


def test_it_is_told_even_where_the_loss_stays_finite() -> None:
    convict(missing().falls(2.3, 0.1), "nonfinite_input", where="input", step=40)


def test_bad_data_after_the_loss_had_broken_with_finite_data_is_not_blamed() -> None:
    assert "nonfinite_input" not in accused(missing().breaks(20))


def test_bad_data_seen_after_the_loss_had_broken_unseen_is_plausible() -> None:
    best = convict(missing().breaks(21), "nonfinite_input", where="input", step=40)
    assert "since step 21, whose data was not looked at" in "".join(e.text for e in best.against)


def test_finite_data_is_not_blamed_for_a_nan() -> None:
    assert "nonfinite_input" not in accused(classifier().breaks(40))


# -- outliers ------------------------------------------------------------------------------


def test_a_batch_with_huge_values_at_which_the_loss_jumps_is_found() -> None:
    best = convict(corrupted(), "outlier_batch", where="input", step=80)
    assert "input reaches 4e+04 at step 80" in texts(best)
    assert "the loss spikes right after" in texts(best)


def test_a_heavy_tail_is_no_outlier() -> None:
    assert "outlier_batch" not in accused(corrupted(size=40.0))


def test_an_outlier_to_which_the_loss_does_not_react_is_no_fault() -> None:
    assert accused(corrupted().falls(2.3, 0.1)) == []


def test_inputs_that_are_always_large_are_no_outliers() -> None:
    draft = corrupted().of_batch("input", absmax=4e4)
    assert "outlier_batch" not in accused(draft)


# -- nothing to learn from -----------------------------------------------------------------


def test_samples_that_are_all_the_same_are_degenerate() -> None:
    draft = classifier().stays().of_batch("input", sample_std=1e-6)
    best = convict(draft, "degenerate_input", where="input")
    assert "differ by 1e-06 of their scale" in texts(best)


@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_samples_that_differ_are_not_blamed(spread: float) -> None:
    draft = classifier().stays().of_batch("input", sample_std=spread)
    assert "degenerate_input" not in accused(draft)


def test_a_batch_of_one_sample_cannot_differ() -> None:
    draft = classifier().stays().of_batch("input", sample_std=0.0, size=1.0)
    assert "degenerate_input" not in accused(draft)


def repeated(draft: Draft, means: np.ndarray | float) -> Draft:
    """One input in every batch, with targets of these means."""
    return draft.of_batch("input", fingerprint=7.0).of_batch("target", mean=means, std=2.9)


def test_one_input_for_all_targets_teaches_nothing() -> None:
    means = 4.5 + 0.4 * np.random.default_rng(0).standard_normal(50)
    best = convict(repeated(classifier().stays(), means), "degenerate_input", where="input", step=0)
    assert "the same in all 50 batches" in texts(best)


def test_a_data_set_that_is_one_batch_comes_with_its_targets_again_and_again() -> None:
    assert "degenerate_input" not in accused(repeated(classifier(), 4.5))
    rounded = 4.5 + 1e-7 * np.arange(50)
    assert "degenerate_input" not in accused(repeated(classifier().stays(), rounded))


def test_a_graph_comes_whole_and_the_loss_asks_some_of_its_nodes() -> None:
    draft = repeated(classifier().stays(), np.linspace(0, 9, 50))
    assert accused(draft)[0] == "degenerate_input"
    nodes = TensorFact((50 * BATCH, CLASSES), "float32", -3.0, 3.0, 0.0, 0.9)
    assert "degenerate_input" not in accused(draft.change_loss(prediction=nodes))


def test_a_batch_of_copies_teaches_little() -> None:
    draft = classifier().stays().of_batch("input", repeated=0.8).without("distinct")
    best = convict(draft, "degenerate_input", where="input", step=0)
    assert "only 6 differ" in texts(best)
    assert "degenerate_input" not in accused(draft.of_batch("input", repeated=0.3))


def test_what_is_learnt_from_copies_is_enough() -> None:
    draft = classifier().of_batch("input", repeated=0.8).without("distinct")
    assert "degenerate_input" not in accused(draft)


def test_environments_may_start_in_one_state() -> None:
    part = LossPart("policy", "mean", -1.0, 64, 0.0)
    draft = classifier().stays().of_batch("input", repeated=0.8).without("distinct")
    assert "degenerate_input" not in accused(draft.change_loss(kind="custom", parts=(part,)))


def test_codes_are_equal_by_their_nature() -> None:
    draft = classifier().stays().of_batch("input", repeated=0.8, distinct=20.0)
    assert "degenerate_input" not in accused(draft)


def test_targets_that_a_model_makes_have_no_outliers() -> None:
    draft = corrupted()
    channels = {c: s for c, s in draft.channels.items() if c.name == "input"}
    for channel, series in channels.items():
        draft.channels[channel._replace(name="target")] = series
        del draft.channels[channel]
    convict(draft, "outlier_batch", where="target", step=80)
    assert "outlier_batch" not in accused(draft.notes(no_grad_forwards=400))


def test_features_next_to_nothing_are_not_normalised_either() -> None:
    tiny = classifier().stays().of_batch("input", feature_rms=6e-9, feature_spread=2.0)
    best = convict(tiny, "unnormalized_input", where="fc1")
    assert "6e-09: next to nothing" in texts(best)


def test_small_features_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(classifier().of_batch("input", feature_rms=6e-9)) == []


def test_an_input_of_zeros_is_empty_and_not_small() -> None:
    assert "unnormalized_input" not in accused(
        classifier().stays().of_batch("input", feature_rms=0.0)
    )


def among_spikes(there: float) -> Draft:
    """A loss with spikes all over, and one batch with huge values among those looked at."""
    draft = corrupted()
    loss = draft.build().series(*LOSS).values.copy()
    loss[5::9] = 500.0
    loss[20 * EVERY] = there
    return draft.loses(loss)


def test_the_loss_of_an_outlying_batch_is_compared_with_the_usual_one() -> None:
    convict(among_spikes(500.0), "outlier_batch", where="input", step=80)
    assert confidence(among_spikes(0.5), "outlier_batch") < 0.6


def test_features_that_grow_within_the_run_were_normalised_at_first() -> None:
    scale = np.full(LOOKS, 67.0)
    assert "unnormalized_input" in accused(raw().of_batch("input", feature_rms=scale))
    scale[:10] = 1.3
    assert "unnormalized_input" not in accused(raw().of_batch("input", feature_rms=scale))


def test_clips_of_one_frame_are_degenerate() -> None:
    draft = classifier().stays().of_batch("input", even_axis=2.0)
    best = convict(draft, "degenerate_input", where="input", step=0)
    assert "along axis 2 of the input all entries are equal" in texts(best)


def test_what_is_learnt_of_an_even_axis_is_enough() -> None:
    assert accused(classifier().of_batch("input", even_axis=2.0)) == []


def test_an_axis_that_changes_in_some_batches_is_not_even() -> None:
    axes = np.where(np.arange(LOOKS) % 2, 2.0, 0.0)
    draft = classifier().stays().of_batch("input", even_axis=axes)
    assert "degenerate_input" not in accused(draft)
