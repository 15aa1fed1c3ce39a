"""A monitor with the classic absolute thresholds, for comparison on the same runs.

    python bench/baseline.py DIR

DIR is what `bench/quality.py --keep DIR` left. Each rule is one of the built-in rules of
Amazon SageMaker Debugger (its developer guide) or of AUTOTRAINER (ICSE 2021), with its default
threshold, applied to the readings of the run file. A monitor of this kind tells symptoms; the
cause that is named for each is the first that its documentation advises to look at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from quality import RESULTS, read

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.store.reader import load_record

VANISHING = 1e-7  # SageMaker Debugger, VanishingGradient: mean absolute gradient
RATIO_HIGH, RATIO_LOW = 10.0, 1e-8  # WeightUpdateRatio
DEAD = 0.5  # DeadRelu: share of inactive units
SATURATED = 0.5  # DeepDiagnosis, ICSE 2022
EXPLODING = 70.0  # AUTOTRAINER: last layer's gradient over the first's
DECREASE = 0.1  # LossNotDecreasing: least fall, as a share
IMBALANCE = 10.0  # ClassImbalance: the frequent class over the rare ones


def top(record: Record, kind: Kind, metric: str) -> float:
    """The largest finite reading anywhere."""
    values = [s.finite().values.max(initial=0.0) for _, s in record.each(kind, metric)]
    return float(max(values, default=0.0))


def usual(record: Record, kind: Kind, metric: str) -> list[float]:
    """The median of each place."""
    return [x for _, s in record.each(kind, metric) if np.isfinite(x := s.median())]


def nonfinite(record: Record) -> bool:
    """A loss is NaN or infinite."""
    return any(not np.isfinite(s.values).all() for _, s in record.each(Kind.LOSS, m.L_VALUE))


def vanishing(record: Record) -> bool:
    """A layer's gradient is under the threshold."""
    return min(usual(record, Kind.MODULE, m.GRAD_RMS), default=1.0) < VANISHING


def exploding(record: Record) -> bool:
    """A layer's gradient is far above another's."""
    found = [x for x in usual(record, Kind.MODULE, m.GRAD_RMS) if x > 0]
    return bool(found) and max(found) / min(found) > EXPLODING


def overshooting(record: Record) -> bool:
    """An update is far above its weight."""
    return top(record, Kind.PARAM, m.P_RATIO) > RATIO_HIGH


def unmoved(record: Record) -> bool:
    """An update is far below its weight."""
    return min(usual(record, Kind.PARAM, m.P_RATIO), default=1.0) < RATIO_LOW


def dead(record: Record) -> bool:
    """Half of a layer's units never fire."""
    return max(usual(record, Kind.MODULE, m.ACT_NEGATIVE_UNITS), default=0.0) > DEAD


def saturated(record: Record) -> bool:
    """Half of a layer's values are in the flat region."""
    return max(usual(record, Kind.MODULE, m.ACT_FLAT), default=0.0) > SATURATED


def imbalanced(record: Record) -> bool:
    """One label outnumbers all others."""
    share = record.series(Kind.BATCH, "target", m.B_MAJORITY).median()
    return share > 1 - 1 / IMBALANCE


def stuck(record: Record) -> bool:
    """The loss has not fallen by the least share."""
    values = record.series(Kind.LOSS, "loss", m.L_VALUE).finite().values
    return len(values) > 10 and values[-5:].mean() > (1 - DECREASE) * values[:5].mean()


RULES: tuple[tuple[Callable[[Record], bool], str], ...] = (
    (nonfinite, "lr_too_high"),
    (overshooting, "lr_too_high"),
    (exploding, "init_too_large"),
    (vanishing, "saturating_activation"),
    (dead, "lr_too_high"),
    (saturated, "saturating_activation"),
    (unmoved, "lr_too_low"),
    (imbalanced, "class_imbalance"),
    (stuck, "lr_too_low"),
)


def main() -> int:
    """Run as a script."""
    folder = Path(sys.argv[1])
    faults = sound = named = seen = alarms = 0
    for row in read(folder / RESULTS):
        if not (row.counted and row.run and (folder / row.run).exists()):
            continue
        record = load_record(folder / row.run)
        said = [cause for rule, cause in RULES if rule(record)]
        if row.kind == "fault":
            faults += 1
            seen += bool(said)
            named += bool(said) and said[0] in row.accepts
        else:
            sound += 1
            alarms += bool(said)
    print(f"faulty runs on which a rule fired: {seen}/{faults} = {seen / faults:.3f}")
    print(f"the cause named first is right:    {named}/{faults} = {named / faults:.3f}")
    print(f"sound runs on which a rule fired:  {alarms}/{sound} = {alarms / sound:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
