"""What is learnt of the training samples and does not hold for others."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Series
from neuraldbg.core.trainings import trainings
from neuraldbg.core.trajectory import Trajectory
from neuraldbg.core.view import View

# An evaluation loss that rose less than this above its best, or is less than this many
# times the training loss, is the usual noise and gap of a good run.
LEAST_RISE, APART = 1.1, 1.5
FEWEST = 4  # evaluations that show a turn
# Of what a constant guess leaves, training lost all but the first share, and evaluation kept at
# least the second: what was learnt is the samples.
ALL_LEARNT, KEPT = 0.9, 0.8
# Above so many constant guesses an evaluation has another unit, or adds up its samples.
ELSE = 5.0


@cause(
    "overfitting",
    "Training loss falls while evaluation loss rises.",
    chain=(
        "the model fits the training samples themselves",
        "what it learnt does not hold for others",
        "the evaluation loss rises",
    ),
    repair="Regularise (augmentation, weight decay, dropout), stop earlier, or use more data.",
    yields_to="distribution_shift outlier_batch class_imbalance wrong_update_sign lr_too_high "
    "unshuffled_data label_noise",
    needs_update=True,
)
def _overfitting(view: View) -> Finding | None:
    held, train = _held_out(view), view.path
    if not len(held) or not train.fall > 0.3 or train.last < 0:
        return None
    return (_turns(train, held) if len(held) >= FEWEST else None) or _memorises(view, held)


def _held_out(view: View) -> Series:
    """The losses of evaluation from the first step of this training to the next training.

    What is evaluated between two steps is read at the second of them.
    """
    seen = view.record.series(Kind.LOSS, "evaluation", m.L_VALUE).finite()
    own = view.path.series.steps
    if not len(own) or not len(seen):
        return seen
    later = [t.first for t in trainings(view.record) if t.first > own[-1]]
    return seen.between(int(own[0]) + 1, min(later, default=int(seen.steps[-1])))


def _turns(train: Trajectory, held: Series) -> Finding | None:
    """An evaluation loss that falls at first and then rises."""
    best = int(np.argmin(held.values))
    last = float(np.median(held.values[-2:]))
    rise = last / max(float(held.values[best]), 1e-12)
    apart = last / max(train.last, 1e-12)
    if best >= len(held) - 1 or rise < LEAST_RISE or apart < APART:
        return None
    step = int(held.steps[best])
    found = [
        evidence(
            f"the evaluation loss rose from {held.values[best]:.3g} at step {step} to {last:.3g}",
            min(0.5 + 20.0 * math.log10(rise / LEAST_RISE), 5.0),
            step=step,
        ),
        evidence(
            f"the training loss fell to {train.last:.3g}: the evaluation loss is {apart:.3g} times as large",
            min(1.5 * math.log10(apart / APART) + 0.5, 3.0),
        ),
    ]
    return Finding(tuple(found), (), step, f"The model overfits from step {step} on.")


def _memorises(view: View, held: Series) -> Finding | None:
    """An evaluation loss that stays near a constant guess while nothing is left of the training loss."""
    train, last = view.path, float(np.median(held.values[-2:]))
    if train.gain is None or train.chance is None or train.gain < ALL_LEARNT:
        return None
    if not KEPT * train.chance <= last < ELSE * train.chance or last < APART * train.last:
        return None
    text = (
        f"the evaluation loss ends at {last:.3g}, where a constant guess gives {train.chance:.3g}, and "
        f"the training loss at {train.last:.3g}: what is learnt holds for the training samples only"
    )
    step = int(held.steps[int(np.argmin(held.values))])
    found = (evidence(text, 5.0, step=step),)
    return Finding(found, (), step, "The model learns the training samples by heart.")
