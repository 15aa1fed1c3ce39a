"""Bars in a line of text."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.record import EMPTY, Series
from neuraldbg.report.spark import WIDTH, line


def of(values: list[float]) -> str:
    return line(Series(np.arange(len(values)), np.array(values)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.0], "▁█"),
        ([3.0, 2.0, float("inf")], "█▁!"),
        ([5.0, 5.0], "▅▅"),
        ([float("nan")], "!"),
    ],
)
def test_the_bars_follow_the_values(values: list[float], said: str) -> None:
    assert of(values) == said


def test_a_spike_and_a_nan_survive_a_long_run() -> None:
    values = [1.0] * 10_000
    values[5_000], values[7_500] = 9.0, float("nan")
    bars = of(values)
    assert len(bars) == WIDTH
    assert bars.count("█") == 1
    assert bars.count("!") == 1


def test_nothing_is_an_empty_line() -> None:
    assert line(EMPTY) == ""
