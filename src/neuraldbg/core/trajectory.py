"""What the loss did over the run, in scale-free terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from neuraldbg.core import metrics as m
from neuraldbg.core.chance import chance_level, floor_level
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Floats, Record, Series

# Share of the run that its beginning and its end are judged on, and how many losses at most.
EDGE: Final = 0.1
EDGE_LOSSES: Final = 20
FIRST_LOSSES: Final = 3
# Beyond this many times the first loss, the next ones are what the first updates have done. From
# batch to batch sound losses differ by less, also those of critics, which grow at first.
BLOWN: Final = 30.0
WINDOWS: Final = 65_536  # windows of a running median that are copied at once


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The loss of one optimizer over the run.

    Attributes:
        series: The losses as recorded.
        first, last, best: Median of the first few and of the last tenth, and the least
            running median; NaN if there is none.
        noise: Typical difference between neighbouring losses (median absolute, over sqrt 2).
        chance: Loss of the best constant prediction, where loss and targets tell it.
        floor: Loss of a perfect prediction: above zero for smoothed labels.
        nonfinite_step: First step with a NaN or infinite loss.
        peak, peak_step: Largest finite loss and its step.
    """

    series: Series
    first: float
    last: float
    best: float
    noise: float
    chance: float | None
    floor: float
    nonfinite_step: int | None
    peak: float
    peak_step: int

    @property
    def fall(self) -> float:
        """Share of the first loss that is gone at the end; negative if it rose."""
        return (self.first - self.last) / max(abs(self.first), 1e-12)

    @property
    def gain(self) -> float | None:
        """Share of the way from chance to the floor that is gone: 0 learnt nothing, 1 all."""
        if self.chance is None or self.chance <= self.floor:
            return None
        return (self.chance - self.last) / (self.chance - self.floor)


def trajectory(record: Record, name: str = "loss") -> Trajectory:
    """The trajectory of a loss; all NaN if it was never seen."""
    series = record.series(Kind.LOSS, name, m.L_VALUE)
    good = series.finite()
    bad = series.steps[~np.isfinite(series.values)]
    values = good.values
    nan = float("nan")
    edge = int(np.clip(EDGE * len(values), 1, EDGE_LOSSES))
    smooth = running_median(values, max(edge // 2, 1))
    top = int(np.argmax(values)) if len(values) else 0
    return Trajectory(
        series=series,
        first=_start(values) if len(values) else nan,
        last=float(np.median(values[-edge:])) if len(values) else nan,
        best=float(smooth.min()) if len(values) else nan,
        noise=float(np.median(np.abs(np.diff(values)))) / math.sqrt(2) if len(values) > 2 else 0.0,
        chance=chance_level(record, name),
        floor=floor_level(record, name),
        nonfinite_step=int(bad[0]) if len(bad) else None,
        peak=float(values[top]) if len(values) else nan,
        peak_step=int(good.steps[top]) if len(values) else 0,
    )


def _start(values: Floats) -> float:
    """The median of the first few losses; the very first where the updates blow up those after."""
    usual = float(np.median(values[:FIRST_LOSSES]))
    return float(values[0]) if usual > BLOWN * values[0] > 0 else usual


def running_median(values: Floats, half: int) -> Floats:
    """Median over a window of `2 * half + 1`, shorter at the ends."""
    n, width = len(values), 2 * half + 1
    out = np.empty(n)
    for i in (*range(min(half, n)), *range(max(n - half, min(half, n)), n)):
        out[i] = np.median(values[max(0, i - half) : i + half + 1])
    windows = sliding_window_view(values, width) if n >= width else np.empty((0, width))
    for start in range(0, len(windows), WINDOWS):
        part = windows[start : start + WINDOWS]
        out[half + start : half + start + len(part)] = np.median(part, axis=1)
    return out
