"""Data that come in an order: of classes, of targets, of the files they were kept in."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.chance import drifts, within_batch
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.record import Floats, Series
from neuraldbg.core.view import View

STEADY: Final = 0.3  # change from batch to batch, over the spread of all batches
# A drift goes from low to high once, a rise and a fall are two; three are a cycle that comes again.
CROSSINGS: Final = 3
# Von Neumann's ratio (Annals of Mathematical Statistics 12, 1941) of what batches say of
# themselves: 1 in random order, where it scatters by one over the root
# of their number: with the fewest readings, this is five times that below.
ORDERED: Final = 0.25
READINGS: Final = 45
# Losses that a leap is compared with, and that it stays up for; one may be a rate too high.
SETTLED: Final = 10
LASTS: Final = 5
LEAPS: Final = 2
SAYINGS: Final = {
    m.B_MEAN: "mean",
    m.B_STD: "spread",
    m.B_LOW: "smallest entry",
    m.B_HIGH: "largest entry",
    m.B_ENTROPY: "entropy",
}


def _in_order(view: View) -> Finding | None:
    """Targets of a regression that swing from batch to batch, and hardly differ inside one.

    Those of a critic that follows itself drift, too, but only in one direction.
    """
    if view.follows_itself:
        return None
    mean = view.batch("target", m.B_MEAN).finite()
    size, within = view.batch("target", m.B_SIZE).median(), within_batch(view.record)
    if len(mean) < 10 or not size >= 4 or not within > 0 or not drifts(view.record, within):
        return None
    swings = _swings(mean.values)
    if swings < CROSSINGS or not _smooth(mean):
        return None
    text = (
        f"targets differ {mean.values.std() / within:.1f} times as much from batch to batch as "
        f"inside one, and swing between low and high {swings} times"
    )
    found = (evidence(text, 4.5, where="target", step=0), view.fails(1.5, 1.5))
    return Finding(found, ("target",), 0, "Batches come in the order of their targets.")


def _swings(values: Floats) -> int:
    """How often a series goes from its lowest quarter to its highest, or back."""
    low, high = np.quantile(values, (0.25, 0.75))
    ends = np.where(values <= low, -1, np.where(values >= high, 1, 0))
    ends = ends[ends != 0]
    return int(np.count_nonzero(ends[1:] != ends[:-1]))


def _smooth(series: Series) -> bool:
    """Whether successive steps differ little, as neighbours in an order do, and noise does not."""
    next_to = np.diff(series.steps) == 1
    change = np.abs(np.diff(series.values))[next_to]
    return len(change) > 0 and float(np.median(change)) < STEADY * float(series.values.std())


def _inputs_in_order(view: View) -> Finding | None:
    """Inputs whose kind changes every so many batches: it comes again, or the loss leaps each time.

    What a model makes itself, or meets for what it does, changes with the model.
    """
    if view.follows_itself or view.learning.by_reward or view.learning.balances:
        return None
    leaps = _leaps(view)
    for metric, word in SAYINGS.items():
        series = view.batch("input", metric).finite()
        if len(series) < READINGS or not series.values.std() > 0:
            continue
        swings, ratio = _swings(series.values), _successive(series.values)
        if ratio >= ORDERED or (swings < CROSSINGS and len(leaps) < LEAPS):
            continue
        text = (
            f"the {word} of the inputs hardly differs between neighbouring "
            f"batches ({ratio:.2g} of what a random order gives), and swings {swings} times"
        )
        forgets = _forgets(view, leaps) if len(leaps) >= LEAPS else view.fails(1.5, 4.0)
        found = (evidence(text, 4.5, where="input", step=0), forgets)
        return Finding(found, ("input",), 0, "Batches come in an order: their inputs tell it.")
    return None


def _forgets(view: View, leaps: list[int]) -> Evidence:
    text = (
        f"{len(leaps)} times the loss leaps above {_nothing(view):.3g}, where nothing is learnt, and "
        f"falls again (first at step {leaps[0]})"
    )
    return evidence(text, 3.0, step=leaps[0])


def _nothing(view: View) -> float:
    """The loss before anything is learnt: of a constant guess, or else the first one."""
    return view.path.first if view.path.chance is None else view.path.chance


def _leaps(view: View) -> list[int]:
    """Steps at which a loss that had come down is at once that of a model that has learnt nothing.

    One batch of outliers passes; what was learnt of other data takes steps to come back.
    """
    losses = view.path.series.finite()
    values, least, found = losses.values, _nothing(view), list[int]()
    for i in _jumps(values, max(least, 0.0)):
        before, after = values[i - SETTLED : i], values[i : i + LASTS]
        usual = float(np.median(before))
        stays = float(np.median(after)) > (values[i] + usual) / 2
        if stays and usual < least / 2 and (not found or i - found[-1] > SETTLED):
            found.append(int(i))
    return [int(losses.steps[i]) for i in found]


def _jumps(values: Floats, least: float) -> NDArray[np.int64]:
    """Where a value above `least` is twice each of the three before it, away from both ends."""
    if len(values) < SETTLED + LASTS:
        return np.empty(0, dtype=np.int64)
    highest = sliding_window_view(values, 3).max(axis=1)[SETTLED - 3 : -LASTS]
    here = values[SETTLED : len(values) - LASTS + 1]
    return np.flatnonzero((here > least) & (here > 2 * highest)) + SETTLED


def _successive(values: Floats) -> float:
    """Mean squared difference of neighbours over twice the variance: von Neumann's ratio, halved."""
    return float(np.mean(np.diff(values) ** 2) / (2 * values.var()))


@cause(
    "unshuffled_data",
    "Batches come in the order of the classes.",
    explains="not_learning spiking",
    chain=(
        "a batch holds one class only",
        "each step makes the model predict that class",
        "it forgets the others",
    ),
    repair="Shuffle the training data (shuffle=True).",
    experiment="shuffle",
)
def _unshuffled_data(view: View) -> Finding | None:
    if len(view.facts.losses) > 1:
        return None  # as in a GAN, whose critic is given batches of ones and of zeros
    return _in_order(view) or _classes_in_order(view) or _inputs_in_order(view)


def _classes_in_order(view: View) -> Finding | None:
    """Batches of one class each."""
    majority = view.batch("target", m.B_MAJORITY).finite()
    mean = view.batch("target", m.B_MEAN).finite()
    moves = view.batch("target", m.B_TRANSITIONS).median()
    size = view.batch("target", m.B_SIZE).median()
    if len(majority) < 10 or not len(mean) or not size >= 4:
        return None
    between, within = float(mean.values.std()), view.batch("target", m.B_STD).median()
    pure = majority.median()
    if pure < 0.8 or between < 2 * max(within, 1e-9) / math.sqrt(size):
        return None
    found = [
        evidence(
            f"{pure:.0%} of the labels of a batch are one class, and the class changes from batch to batch",
            5.0,
            where="target",
            step=0,
        ),
        evidence(
            f"neighbouring samples differ in {moves:.0%} of the cases", 1.0 if moves < 0.1 else -1.0
        ),
        view.fails(1.5, 1.5),
    ]
    return Finding(tuple(found), ("target",), 0, "Batches come in the order of the classes.")
