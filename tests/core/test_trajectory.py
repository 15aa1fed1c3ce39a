"""What the loss did over the run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.record import Record
from neuraldbg.core.trajectory import WINDOWS, running_median, trajectory

from .records import CLASSES, STEPS, classifier


def test_a_run_that_learns() -> None:
    path = trajectory(classifier().build())
    assert path.first == pytest.approx(math.log(CLASSES), rel=0.05)
    assert path.last == pytest.approx(0.12, abs=0.03)
    assert path.best <= path.last
    assert path.fall > 0.9
    assert path.gain is not None
    assert path.gain > 0.9
    assert path.nonfinite_step is None
    assert path.peak_step < 10


def test_a_run_that_was_never_seen() -> None:
    path = trajectory(Record(classifier().build().facts))
    assert len(path.series) == 0
    assert all(math.isnan(x) for x in (path.first, path.last, path.best, path.peak))
    assert (path.noise, path.nonfinite_step, path.peak_step) == (0.0, None, 0)


def test_a_run_that_has_only_nan() -> None:
    path = trajectory(classifier().breaks(0).build())
    assert path.nonfinite_step == 0
    assert math.isnan(path.last)
    assert math.isnan(path.fall)


def test_the_first_non_finite_loss_and_what_went_before() -> None:
    path = trajectory(classifier().breaks(150).build())
    assert path.nonfinite_step == 150
    assert path.last == pytest.approx(0.16, abs=0.05)


def test_the_end_is_a_median_so_one_odd_loss_does_not_move_it() -> None:
    draft = classifier()
    values = trajectory(draft.build()).series.values.copy()
    values[-1] = 1e6
    path = trajectory(draft.loses(values).build())
    assert path.last < 1.0
    assert (path.peak, path.peak_step) == (1e6, STEPS - 1)


def test_noise_is_what_neighbours_differ_by() -> None:
    noise = np.random.default_rng(3).normal(0.0, 0.1, STEPS)
    path = trajectory(classifier().loses(5 - np.linspace(0, 4, STEPS) + noise).build())
    assert path.noise == pytest.approx(0.0675, rel=0.2)


def test_a_loss_that_rises_has_a_negative_fall() -> None:
    assert trajectory(classifier().diverges().build()).fall < -1


# -- the running median --------------------------------------------------------------------


def plain(values: list[float], half: int) -> list[float]:
    """The running median, one window at a time."""
    return [float(np.median(values[max(0, i - half) : i + half + 1])) for i in range(len(values))]


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.integers(1, 12))
def test_the_running_median_is_the_median_of_each_window(values: list[float], half: int) -> None:
    assert running_median(np.array(values), half).tolist() == plain(values, half)


def test_a_long_run_takes_no_time_to_speak_of() -> None:
    values = np.random.default_rng(0).normal(size=150_000)
    fast = elapsed(lambda: running_median(values, 10))
    assert fast < elapsed(lambda: plain(values[:30_000].tolist(), 10))


def test_a_long_run_is_the_same_in_parts() -> None:
    values = np.random.default_rng(0).normal(size=70_000)
    around = slice(WINDOWS - 20, WINDOWS + 40)
    expected = plain(values[around].tolist(), 10)
    assert running_median(values, 10)[around].tolist()[10:-10] == expected[10:-10]


def elapsed(call: Callable[[], object]) -> float:
    """Seconds of the processor that a call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start


def test_a_loss_that_the_first_update_blows_up_began_where_it_was_before() -> None:
    blown = np.concatenate([[1.4], np.geomspace(2000.0, 1.6, STEPS - 1)])
    assert trajectory(classifier().loses(blown).build()).first == 1.4
    high = np.geomspace(2000.0, 1.6, STEPS)
    assert trajectory(classifier().loses(high).build()).first > 1000
