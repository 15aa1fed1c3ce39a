"""Thinning keeps what one would look for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.record import Series
from neuraldbg.report.charts.thin import POINTS, thin


def long(values: np.ndarray) -> Series:
    return Series(np.arange(len(values)) * 3, values)


@given(st.integers(700, 5000), st.integers(0, 2**32 - 1))
def test_the_extremes_and_the_ends_stay(length: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(length)
    whole = long(values)
    few = thin(whole)
    assert len(few) <= POINTS
    assert few.values.max() == values.max()
    assert few.values.min() == values.min()
    assert (few.steps[0], few.steps[-1]) == (whole.steps[0], whole.steps[-1])
    assert (np.diff(few.steps) > 0).all()
    assert (few.values == whole.on(few.steps)).all()


def test_a_single_nan_in_a_hundred_thousand_stays() -> None:
    values = np.ones(100_000)
    values[54_321] = np.nan
    assert np.isnan(thin(long(values)).values).sum() == 1


def test_a_run_that_is_nan_for_ever_stays_small() -> None:
    values = np.full(100_000, np.nan)
    few = thin(long(values))
    assert 2 <= len(few) <= POINTS


def test_a_short_series_is_left_alone() -> None:
    short = long(np.ones(10))
    assert thin(short) is short
