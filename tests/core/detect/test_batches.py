"""Anomalies of the data."""

from __future__ import annotations

import numpy as np

from neuraldbg.core.detect.batches import REPORTED, batches
from neuraldbg.core.events import EventType

from ..records import EVERY, Draft, classifier

LOOKS = 50


def seen(draft: Draft) -> list[tuple[str, str, int]]:
    """Where, what, step of the events."""
    found = list(batches(draft.build()))
    assert all(e.kind == EventType.DATA for e in found)
    return [(e.where, e.after, e.step) for e in found]


def at(*looks: int, value: float, usual: float = 0.0) -> np.ndarray:
    """Readings that are unusual at some looks."""
    values = np.full(LOOKS, usual)
    values[list(looks)] = value
    return values


def test_the_first_batch_with_non_finite_entries() -> None:
    draft = classifier().of_batch("input", nonfinite=at(7, 9, value=3.0))
    (found,) = batches(draft.build())
    assert (found.where, found.after, found.step) == ("input", "nonfinite", 7 * EVERY)
    assert found.metadata == {"count": 3.0, "batches": 2 / LOOKS}


def test_targets_count_as_well_as_inputs() -> None:
    draft = classifier().of_batch("target", nonfinite=at(7, value=1.0))
    assert seen(draft) == [("target", "nonfinite", 7 * EVERY)]


def test_batches_with_far_larger_entries_are_outliers() -> None:
    draft = classifier().of_batch("input", absmax=at(8, 30, value=1e4, usual=4.0))
    assert seen(draft) == [("input", "outlier", 8 * EVERY), ("input", "outlier", 30 * EVERY)]


def test_heavy_tails_are_none() -> None:
    assert seen(classifier().of_batch("input", absmax=at(8, value=100.0, usual=4.0))) == []


def test_only_the_first_few_are_told() -> None:
    looks = range(0, 20, 2)
    draft = classifier().of_batch("input", absmax=at(*looks, value=1e4, usual=4.0))
    assert len(seen(draft)) == REPORTED


def test_few_batches_and_batches_of_zero_have_no_usual_size() -> None:
    draft = classifier(steps=9 * EVERY)
    few = np.full(9, 4.0)
    few[5] = 1e6
    assert seen(draft.of_batch("input", absmax=few)) == []
    assert seen(classifier().of_batch("input", absmax=at(8, value=1.0))) == []


def test_healthy_batches_are_no_event() -> None:
    assert seen(classifier()) == []
