"""Data that changes: within the run, or from training to evaluation."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Floats
from neuraldbg.core.trainings import trainings
from neuraldbg.core.view import View

# How far the mean of another input is away, in spreads of the usual one, and how many times
# larger or smaller its spread is. Augmentation, noise and mixing change it by less.
AWAY: Final = 2.0
UNLIKE: Final = 3.0
GROSSLY: Final = 4.0  # times these: no augmentation and no other recording, but raw numbers
WORSE: Final = 3.0  # times the loss of training, from which an evaluation has gone wrong


@cause(
    "distribution_shift",
    "The statistics of the data change within the run.",
    explains="spiking diverged",
    chain=(
        "the inputs change their mean or scale at some step",
        "what was learnt before no longer fits",
        "the loss rises",
    ),
    repair="Find out what changed in the data at that step.",
    yields_to="unshuffled_data outlier_batch nonfinite_input",
)
def _distribution_shift(view: View) -> Finding | None:
    if len(view.models) > 1:
        return None  # what one model is given, another may have made
    return _change(view) or _other_preparation(view)


def _other_preparation(view: View) -> Finding | None:
    """Evaluation asks for something that looks unlike what training gave."""
    (mean, std), (other, spread) = (
        (view.batch(name, m.B_MEAN).median(), view.batch(name, m.B_STD).median())
        for name in ("input", "evaluation")
    )
    if not std > 0 or not spread > 0:
        return None
    away, ratio = abs(other - mean) / std, max(spread / std, std / spread)
    if away < AWAY and ratio < UNLIKE:
        return None
    text = (
        f"the input of evaluation has a mean of {other:.3g} and a spread of {spread:.3g}, that of "
        f"training {mean:.3g} and {std:.3g}"
    )
    beyond = math.log10(max(away / AWAY, ratio / UNLIKE) / GROSSLY)
    weight = min(3.0 + 2.5 * max(beyond, 0.0), 5.5)
    found = (evidence(text, weight, where="input"), _worse_there(view))
    told = "Evaluation prepares its input in another way than training does."
    repair = (
        "Give both the same preparation: the same scaling, with the numbers of the training set."
    )
    return Finding(found, ("input",), None, told, repair)


def _worse_there(view: View) -> Evidence:
    """Whether the evaluation's loss is far from that of training."""
    series = view.record.series(Kind.LOSS, "evaluation", m.L_VALUE).finite()
    if not len(series) or not len(view.path.series):
        return evidence("its loss was not seen", -1.5)
    there, here = float(np.median(series.values[-3:])), view.path.last
    text = f"its loss ends at {there:.3g}, that of training at {here:.3g}"
    return evidence(text, 3.0 if there > WORSE * max(here, 0.0) else -3.0)


def _change(view: View) -> Finding | None:
    """The mean or the spread of the input moves within the run."""
    for metric, word in ((m.B_MEAN, "mean"), (m.B_STD, "spread")):
        series = view.batch("input", metric).finite()
        if len(series) < 40:
            continue
        at, strength = change_point(series.values)
        noise = 1.4826 * float(np.median(np.abs(np.diff(series.values)))) + 1e-12
        typical = view.batch("input", m.B_STD).median()
        if strength > 12 * noise and strength > 0.3 * typical:
            step = int(series.steps[at])
            if _begins_around(view, series.steps, at):
                continue
            found = [
                evidence(
                    f"the {word} of the input moves by {strength:.3g} at step {step} ({strength / noise:.0f} times its noise)",
                    4.5,
                    where="input",
                    step=step,
                ),
                view.fails(1.0, 2.0),
                _jump(view, step),
            ]
            return Finding(tuple(found), ("input",), step, f"The input changes at step {step}.")
    return None


def _begins_around(view: View, steps: NDArray[np.int64], at: int) -> bool:
    """Whether a later training begins there: fine-tuning has data of its own."""
    first, last = int(steps[max(at - 2, 0)]), int(steps[min(at + 1, len(steps) - 1)])
    return any(first < t.first <= last for t in trainings(view.record)[1:])


def _jump(view: View, step: int) -> Evidence:
    """Whether the loss rose when the data changed."""
    losses = view.path.series.finite()
    before = losses.between(step - 20, step - 1).values
    after = losses.between(step, step + 8).values
    if len(before) < 5 or not len(after):
        return evidence("no losses around that step", 0.0)
    usual, top = float(np.median(before)), float(after.max())
    rose = top > 1.5 * usual and top - usual > 6 * view.path.noise
    text = f"the loss goes from {usual:.3g} to {top:.3g} there"
    return evidence(text, 2.0 if rose else -2.0, step=step)


def change_point(values: Floats) -> tuple[int, float]:
    """The split that the ranks tell best, away from the ends, and its difference of medians.

    Pettitt's statistic (1979): single outliers do not move it, and it is largest where the
    change is, while the difference of medians alone is equal over a wide range of splits.
    """
    n = len(values)
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[group]
    lean = np.abs(np.cumsum(ranks) - np.arange(1, n + 1) * (n + 1) / 2)
    at = n // 8 + int(np.argmax(lean[n // 8 - 1 : n - n // 8 - 1]))
    return at, abs(float(np.median(values[:at]) - np.median(values[at:])))
