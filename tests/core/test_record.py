"""Series and records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Facts, Kind, ModuleFact, RunFact
from neuraldbg.core.record import EMPTY, Record, Series

from .records import classifier, series

READINGS = st.dictionaries(st.integers(0, 50), st.floats(), max_size=20)


def made(readings: dict[int, float]) -> Series:
    """A series with readings at some steps."""
    steps = sorted(readings)
    return Series(np.array(steps, np.int64), np.array([readings[s] for s in steps], np.float64))


def test_the_finite_part_keeps_steps_and_values_together() -> None:
    good = series([1.0, math.nan, 3.0, math.inf, 5.0]).finite()
    assert good.steps.tolist() == [0, 2, 4]
    assert good.values.tolist() == [1.0, 3.0, 5.0]


def test_a_span_includes_both_ends() -> None:
    part = series([0.0, 1.0, 2.0, 3.0], every=2).between(2, 4)
    assert part.steps.tolist() == [2, 4]
    assert part.values.tolist() == [1.0, 2.0]


def test_the_median_is_that_of_the_finite_readings() -> None:
    assert series([1.0, math.nan, 3.0]).median() == 2.0
    assert math.isnan(series([math.nan, math.inf]).median())
    assert math.isnan(EMPTY.median())


@given(READINGS, st.lists(st.integers(-5, 60), max_size=20))
def test_readings_at_steps_are_those_of_the_series_or_missing(
    readings: dict[int, float], steps: list[int]
) -> None:
    found = made(readings).on(np.array(steps, np.int64))
    expected = [readings.get(s, math.nan) for s in steps]
    assert np.array_equal(found, expected, equal_nan=True)


def test_what_was_never_measured_is_an_empty_series() -> None:
    record = classifier().build()
    assert len(record.series(Kind.MODULE, "nowhere", m.ACT_RMS)) == 0
    assert len(record.series(Kind.MODULE, "fc1", "nothing")) == 0


def test_each_gives_the_sites_that_have_readings() -> None:
    draft = classifier()
    draft.channels[Channel(Kind.BATCH, "input.1", m.B_MEAN)] = EMPTY
    names = [name for name, _ in draft.build().each(Kind.BATCH, m.B_MEAN)]
    assert sorted(names) == ["input", "target"]


def test_called_modules_come_in_the_order_of_their_first_call() -> None:
    modules = (
        ModuleFact("a", "Linear", order=2),
        ModuleFact("b", "Linear"),
        ModuleFact("c", "Linear", order=0),
    )
    record = Record(Facts(RunFact(id="r"), modules))
    assert [x.name for x in record.called()] == ["c", "a"]


def test_modules_and_parameters_are_found_by_name() -> None:
    record = classifier().build()
    module, param = record.module("fc2"), record.param("fc2.weight")
    assert module is not None
    assert module.kind == "Linear"
    assert param is not None
    assert param.shape == (64, 64)
    assert record.module("fc9") is None
    assert record.param("fc9.weight") is None


def test_records_and_series_cannot_be_changed() -> None:
    record = classifier().build()
    with pytest.raises(AttributeError):
        record.facts = record.facts  # type: ignore[misc]
    with pytest.raises(AttributeError):
        EMPTY.steps = EMPTY.steps  # type: ignore[misc]
