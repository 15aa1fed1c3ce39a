"""Axes: every number has a place, whatever it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.report.charts.scale import Scale, fit, number, steps_of

NUMBERS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20)


@given(NUMBERS)
def test_every_finite_number_has_a_place_and_the_axis_has_ends(values: list[float]) -> None:
    array = np.array(values, np.float64)
    scale = fit(array)
    finite = array[np.isfinite(array)]
    assert scale.low < scale.high
    share = scale.share(finite)
    assert np.isfinite(share).all()
    assert ((share >= 0) & (share <= 1)).all()
    assert all(math.isfinite(tick) for tick in scale.ticks())
    assert len(scale.ticks()) <= 12


@given(st.lists(st.floats(1e-30, 1e30), min_size=2, max_size=20))
def test_order_is_kept(values: list[float]) -> None:
    ordered = np.array(sorted(values))
    assert (np.diff(fit(ordered).share(ordered)) >= 0).all()


def test_a_wide_range_of_positive_numbers_is_logarithmic() -> None:
    assert fit(np.array([1e-6, 1.0])).logarithmic
    assert not fit(np.array([0.5, 1.0])).logarithmic
    assert not fit(np.array([-1.0, 1000.0])).logarithmic


def test_ticks_are_round() -> None:
    assert steps_of(0, 100) == [0, 20, 40, 60, 80, 100]
    assert Scale(1e-6, 1e-2, logarithmic=True).ticks() == pytest.approx(
        [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (0.25, "0.25"),
        (1e-7, "1e-7"),
        (123456.0, "1.23e5"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_a_number_is_short(value: float, said: str) -> None:
    assert number(value) == said
