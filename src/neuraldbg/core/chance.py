"""What a loss is worth: that of a constant guess, and that of a perfect prediction."""

from __future__ import annotations

import math

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import BINARY, Kind, LossFact, LossPart
from neuraldbg.core.record import Record, Series


def chance_level(record: Record, name: str = "loss") -> float | None:
    """The loss of the best constant prediction, from the statistics of the targets."""
    fact = _fact(record, name)
    if fact is None or fact.weighted or _undivided(fact):
        return None
    factor = _factor(fact)
    if factor is None:
        return None
    level = _chance(fact, _during(record, record.series(Kind.LOSS, name, m.L_VALUE)))
    return level * factor if level is not None and factor > 0 else None


def floor_level(record: Record, name: str = "loss") -> float:
    """The loss of a prediction that is always right: the entropy of a smoothed label."""
    fact = _fact(record, name)
    soft = _smoothed(fact) if fact is not None else None
    if fact is None or soft is None:
        return 0.0
    return _entropy([1.0], soft.smoothing, soft.classes) * (_factor(fact) or 0.0)


def _fact(record: Record, name: str) -> LossFact | None:
    index = "0" if name == "loss" else name.removeprefix("loss.")
    return next((f for f in record.facts.losses if str(f.index) == index), None)


def _smoothed(fact: LossFact) -> LossPart | None:
    return next((p for p in fact.parts if p.smoothing > 0 and p.classes > 1), None)


def _entropy(shares: list[float], smoothing: float, classes: int) -> float:
    """Entropy of labels that come with these shares, a part of which is spread over all classes."""
    padded = [*shares, *([0.0] * (classes - len(shares)))]
    mixed = [(1 - smoothing) * p + smoothing / classes for p in padded[:classes]]
    return -sum(p * math.log(p) for p in mixed if p > 0)


def _blurred(record: Record, soft: LossPart) -> float:
    """By how much smoothing raises the entropy, if all but the first label come equally often."""
    majority = record.series(Kind.BATCH, "target", m.B_MAJORITY).median()
    distinct = record.series(Kind.BATCH, "target", m.B_DISTINCT).median()
    if not 0 < majority <= 1 or not distinct >= 1:
        return 0.0
    others = int(min(distinct, soft.classes)) - 1
    shares = [majority, *([(1 - majority) / others] * others)] if others > 0 else [1.0]
    return _entropy(shares, soft.smoothing, soft.classes) - _entropy(shares, 0.0, soft.classes)


def _during(record: Record, loss: Series) -> Record:
    """The targets that were met while a loss was computed; another training has others."""
    if not len(loss):
        return record
    first, last = int(loss.steps[0]), int(loss.steps[-1])
    targets = (c for c in record.channels if c.kind == Kind.BATCH and c.name == "target")
    return Record(record.facts, {c: record.channels[c].between(first, last) for c in targets})


def _undivided(fact: LossFact) -> bool:
    """Whether it grows with the batch, or may do so."""
    if not fact.parts:
        return fact.reduction == "sum"
    return any(
        part.reduction == "sum" or (part.reduction == "normalised_sum" and not part.count)
        for part in _errors(fact)
    )


def _errors(fact: LossFact) -> list[LossPart]:
    """The terms that are not zero where a constant is guessed.

    A divergence beside an error is: a code that tells nothing costs nothing.
    """
    return [part for part in fact.parts if part.kind != "divergence"] or list(fact.parts)


def _factor(fact: LossFact) -> float | None:
    """What the loss multiplies its one kind of term by; None where it adds up several kinds.

    A contrastive loss adds the cross-entropies of rows and columns, which are of one size.
    """
    errors = _errors(fact)
    alike = {(part.kind, part.reduction, part.entries) for part in errors}
    factors = [part.factor for part in errors if part.factor is not None]
    if len(alike) > 1 or len(factors) < len(errors):
        return None
    if len(errors) > 1 and errors[0].kind not in ("nll", "cross_entropy"):
        return None
    return sum(factors) * _terms(errors[0], fact) if errors else 1.0


def _terms(part: LossPart, fact: LossFact) -> float:
    """How many errors are added up for each that is averaged: the features of a sample, say."""
    shape = fact.target.shape if fact.target is not None else ()
    asked = math.prod(shape)
    if part.reduction == "mean_of_sums":
        return max(asked / part.entries, 1.0) if part.entries else 1.0
    if part.reduction != "normalised_sum" or not part.count:
        return 1.0
    # What a masked sum is divided by is else the number of valid entries, and it is their mean.
    leading = {math.prod(shape[:i]) for i in range(1, len(shape))}
    return asked / part.count if part.kind != "custom" or part.count in leading else 1.0


def _chance(fact: LossFact, record: Record) -> float | None:
    if fact.kind in ("cross_entropy", "nll"):
        entropy, soft = _pooled_entropy(record), _smoothed(fact)
        if entropy is not None and soft is not None:
            entropy += _blurred(record, soft)
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
