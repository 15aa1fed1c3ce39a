"""What the loss did over the run, in scale-free terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import BINARY, Kind, LossFact
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
        nonfinite_step: First step with a NaN or infinite loss.
        peak, peak_step: Largest finite loss and its step.
    """

    series: Series
    first: float
    last: float
    best: float
    noise: float
    chance: float | None
    nonfinite_step: int | None
    peak: float
    peak_step: int

    @property
    def fall(self) -> float:
        """Share of the first loss that is gone at the end; negative if it rose."""
        return (self.first - self.last) / max(abs(self.first), 1e-12)

    @property
    def gain(self) -> float | None:
        """Share of the chance level that is gone at the end: 0 learnt nothing, 1 all."""
        if self.chance is None or self.chance <= 0:
            return None
        return 1.0 - self.last / self.chance


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


def chance_level(record: Record, name: str = "loss") -> float | None:
    """The loss of the best constant prediction, from the statistics of the targets."""
    index = "0" if name == "loss" else name.removeprefix("loss.")
    fact = next((f for f in record.facts.losses if str(f.index) == index), None)
    if fact is None or fact.weighted or fact.reduction == "sum":
        return None
    factor = _factor(fact)
    if factor is None:
        return None
    level = _chance(fact, _during(record, record.series(Kind.LOSS, name, m.L_VALUE)))
    return level * factor if level is not None and factor > 0 else None


def _during(record: Record, loss: Series) -> Record:
    """The targets that were met while a loss was computed; another training has others."""
    if not len(loss):
        return record
    first, last = int(loss.steps[0]), int(loss.steps[-1])
    targets = (c for c in record.channels if c.kind == Kind.BATCH and c.name == "target")
    return Record(record.facts, {c: record.channels[c].between(first, last) for c in targets})


def _factor(fact: LossFact) -> float | None:
    """What the loss multiplies its one kind of term by; None where it adds up several kinds.

    A contrastive loss adds the cross-entropies of rows and columns, which are of one size.
    """
    alike = {(part.kind, part.reduction, part.entries) for part in fact.parts}
    factors = [part.factor for part in fact.parts if part.factor is not None]
    if len(alike) > 1 or len(factors) < len(fact.parts):
        return None
    if len(fact.parts) > 1 and fact.parts[0].kind not in ("nll", "cross_entropy"):
        return None
    return sum(factors) if factors else 1.0


def _chance(fact: LossFact, record: Record) -> float | None:
    if fact.kind in ("cross_entropy", "nll"):
        entropy = _pooled_entropy(record)
        return entropy if entropy is not None and entropy > 0 else None
    if fact.kind in BINARY:
        p = record.series(Kind.BATCH, "target", m.B_MEAN).median()
        return -p * math.log(p) - (1 - p) * math.log(1 - p) if 0 < p < 1 else None
    between = within_batch(record)
    if not between > 0 or drifts(record, between):
        return None
    if fact.kind == "mse":
        return between * between
    if fact.kind == "l1":
        return between * math.sqrt(2 / math.pi)
    return _huber(between) if fact.kind == "smooth_l1" else None


def within_batch(record: Record) -> float:
    """Standard deviation of the targets between the samples of a batch; NaN if unknown."""
    mean, std, spread = (
        record.series(Kind.BATCH, "target", metric).median()
        for metric in (m.B_MEAN, m.B_STD, m.B_SAMPLE_STD)
    )
    return spread * math.hypot(mean, std)


def drifts(record: Record, within: float) -> bool:
    """Whether targets differ more from batch to batch than inside one.

    Then a batch does not tell how far all targets are spread.

    Args:
        record: The run.
        within: Standard deviation between the samples of a batch.
    """
    means = record.series(Kind.BATCH, "target", m.B_MEAN).finite().values
    return len(means) > 1 and float(means.std()) > 2 * within


def _huber(spread: float) -> float:
    """Mean Huber loss (delta 1) of a normal variable of that standard deviation."""
    z = 1 / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    beyond = math.erfc(z / math.sqrt(2)) / 2
    inner = 0.5 * spread * spread * ((1 - 2 * beyond) - 2 * z * density)
    return inner + 2 * spread * density - beyond


def _pooled_entropy(record: Record) -> float | None:
    """Entropy of the labels of a batch, corrected for the batch being small.

    The plug-in estimate is too low by about (K - 1) / 2N (Miller and Madow, 1955).
    """
    entropy = record.series(Kind.BATCH, "target", m.B_ENTROPY).median()
    distinct = record.series(Kind.BATCH, "target", m.B_DISTINCT).median()
    fact = next((f for f in record.facts.losses if f.target is not None), None)
    if not math.isfinite(entropy) or fact is None or fact.target is None:
        return None
    count = math.prod(fact.target.shape) if fact.target.shape else 1
    return entropy + (distinct - 1) / (2 * max(count, 1))
