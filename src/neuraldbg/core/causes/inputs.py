"""Faults of the input: scale, missing values, outliers, repetition."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Series
from neuraldbg.core.view import View

LARGE_FEATURE = 10.0
# Under this even the largest feature is lost beside a layer's biases and a normalisation's epsilon.
SMALL_FEATURE: Final = 1e-4
LEAP: Final = 10.0  # times the usual loss, which a batch of usual samples does not reach
LOOKS = 5  # batches that are all the same, or that all differ, by no accident


@cause(
    "unnormalized_input",
    "Raw features with large or very unequal scales enter the model.",
    explains="not_learning diverged nonfinite initial_loss saturated dead huge_updates exploding zero_gradient",
    chain=(
        "some features are orders of magnitude larger than others",
        "the first layer saturates or its gradient explodes",
        "no learning rate suits all weights",
    ),
    repair="Standardise the input: subtract the mean and divide by the standard deviation of each feature.",
    experiment="standardise the input",
    rivals={
        "init_too_large": "there the input is fine and the weights are large",
        "lr_too_high": "there the input is fine",
    },
    references=("LeCun et al., Efficient BackProp, 1998",),
    yields_to="nonfinite_input eval_mode_training",
)
def _unnormalized_input(view: View) -> Finding | None:
    best = None
    for name, series in view.record.each(Kind.BATCH, m.B_FEATURE_RMS):
        if name.startswith("input") and (best is None or series.median() > best[1]):
            best = (name, series.median())
    if best is None:
        return None
    if best[1] < SMALL_FEATURE:
        return _faint(view, *best)
    if not best[1] > LARGE_FEATURE:
        return None
    name, scale = best
    early = view.usual(view.batch(name, m.B_FEATURE_RMS), LOOKS)
    if _largest_met(view) < min(early, scale):
        return None  # the model scales it down itself
    spread = view.batch(name, m.B_FEATURE_SPREAD).median()
    found = [
        evidence(
            f"the largest feature of {name} has a scale of {scale:.3g}",
            min(2.0 + 1.2 * math.log10(scale / LARGE_FEATURE), 4.5),
            where=name,
            step=0,
        )
    ]
    if early <= LARGE_FEATURE:
        found.append(evidence(f"at first it was {early:.3g}: the data changed", -6.0))
    if spread > 20:
        found.append(evidence(f"it is {spread:.3g} times that of a typical feature", 1.0))
    found.append(view.fails(2.5, 3.0))
    first = view.layers[0].name if view.layers else "input"
    return Finding(
        tuple(found),
        (first,),
        0,
        f"The input is not normalised: features of scale {scale:.3g} enter {first}.",
    )


def _largest_met(view: View) -> float:
    """The largest number that a layer is usually given early in the run; infinite if unknown."""
    tops = [view.usual(view.module(x.name, m.IN_ABSMAX), LOOKS) for x in view.layers]
    return max((t for t in tops if math.isfinite(t)), default=math.inf)


def _faint(view: View, name: str, scale: float) -> Finding | None:
    """Features so small that the model cannot tell the samples apart."""
    if not scale > 0.0:
        return None  # not small, but empty
    text = f"the largest feature of {name} has a scale of {scale:.3g}: next to nothing"
    weight = min(2.0 + 0.6 * math.log10(SMALL_FEATURE / scale), 4.5)
    found = (evidence(text, weight, where=name, step=0), view.fails(2.5, 3.0))
    first = view.layers[0].name if view.layers else "input"
    told = f"The input is not normalised: features of scale {scale:.3g} enter {first}."
    return Finding(found, (first,), 0, told)


@cause(
    "nonfinite_input",
    "The data holds NaN or infinite values.",
    explains="nonfinite",
    chain=(
        "a batch brings a NaN or infinity",
        "every sum it enters becomes non-finite",
        "one backward pass spoils all weights",
    ),
    repair="Find and fill or drop the non-finite entries before training.",
    experiment="drop the samples",
    rivals={"nonfinite_operation": "there the data is finite"},
)
def _nonfinite_input(view: View) -> Finding | None:
    for name, series in view.record.each(Kind.BATCH, m.B_NONFINITE):
        bad = np.flatnonzero(series.values > 0)
        if not len(bad):
            continue
        step, count = int(series.steps[bad[0]]), float(series.values[bad[0]])
        found = [
            evidence(
                f"{name} holds {count:.0f} non-finite entries at step {step} ({len(bad)} of {len(series)} batches looked at)",
                7.0,
                where=name,
                step=step,
            )
        ]
        found += _consequence(view, series, step)
        return Finding(
            tuple(found),
            (name,),
            step,
            f"The {name} holds NaN or infinite values from step {step} on.",
        )
    return None


def _consequence(view: View, series: Series, step: int) -> list[Evidence]:
    """What the loss says to data that is not finite: it follows, or it broke before."""
    broke = view.path.nonfinite_step if view.trouble.kind == "nonfinite" else None
    if broke is None:
        return []
    if step <= broke:
        return [evidence("the loss is not finite from then on", 1.5)]
    if len(series.between(broke, broke)):
        return [evidence(f"the loss is not finite since step {broke}, whose data is finite", -8.0)]
    text = f"the loss is not finite since step {broke}, whose data was not looked at"
    return [evidence(text, -2.0)]


@cause(
    "outlier_batch",
    "A few corrupted samples have huge values.",
    explains="spiking nonfinite diverged",
    chain=(
        "a batch holds values far outside the usual range",
        "its loss and gradient are huge",
        "one step throws the weights away",
    ),
    repair="Find and drop or clip the outlying samples.",
    experiment="skip these batches",
)
def _outlier_batch(view: View) -> Finding | None:
    outlying = [e for e in view.events if e.after == "outlier"]
    if not outlying:
        return None
    e = outlying[0]
    size, usual = float(e.metadata["largest"] or 0), float(e.metadata["usual"] or 1)
    found = [
        evidence(
            f"{e.where} reaches {size:.3g} at step {e.step}, usually {usual:.3g}",
            min(2.0 + math.log10(size / usual), 5.0),
            where=e.where,
            step=e.step,
        )
    ]
    if e.where == "target" and view.follows_itself:
        found.append(evidence("the targets follow from a model's own predictions", -6.0))
    spikes = [
        x
        for x in view.events
        if x.after in ("spiking", "nonfinite", "diverging") and 0 <= x.step - e.step <= 3
    ]
    reacts = bool(spikes) or _leaps(view, e.step)
    found.append(
        evidence("the loss spikes right after", 2.5)
        if reacts
        else evidence("the loss does not react", -3.0)
    )
    return Finding(
        tuple(found),
        (e.where,),
        e.step,
        f"A batch at step {e.step} holds values {size / usual:.3g} times the usual.",
    )


def _leaps(view: View, step: int) -> bool:
    """Whether the loss of that step is far above its usual level, among other spikes or not."""
    there = view.path.series.between(step, step).finite().values
    usual = view.usual(view.path.series)
    return len(there) > 0 and bool(there.max() > LEAP * usual > 0)


@cause(
    "degenerate_input",
    "The input is constant, zeroed or repeated.",
    explains="not_learning",
    chain=("all samples look the same to the model", "nothing can be learnt from them"),
    repair="Check the loading and preprocessing of the input.",
)
def _degenerate_input(view: View) -> Finding | None:
    repeated = _repeated(view) or _copies(view) or _even(view)
    if repeated is not None:
        return repeated
    spread, size = (
        view.batch("input", m.B_SAMPLE_STD).finite(),
        view.batch("input", m.B_SIZE).median(),
    )
    if len(spread) < 3 or not size >= 2:
        return None
    if spread.median() > 1e-3:
        return None
    found = [
        evidence(
            f"the samples of a batch differ by {spread.median():.2g} of their scale",
            5.0,
            where="input",
            step=0,
        ),
        view.fails(1.5, 2.0),
    ]
    return Finding(tuple(found), ("input",), 0, "All samples of a batch are (nearly) the same.")


def _repeated(view: View) -> Finding | None:
    """One and the same input in every batch, with targets that change."""
    seen = view.batch("input", m.B_FINGERPRINT)
    asked, spread = (view.batch("target", x).finite() for x in (m.B_MEAN, m.B_STD))
    if len(seen) < LOOKS or len(asked) < LOOKS or len(view.models) > 1 or _chosen_from(view):
        return None
    # Not their fingerprint: targets of a loss by hand are computed back, with other roundings.
    moves = float(asked.values.std()) > 1e-2 * spread.median()
    if len(np.unique(seen.values)) > 1 or not moves:
        return None
    text = f"the input is the same in all {len(seen)} batches looked at, and the targets change"
    found = (evidence(text, 6.0, where="input", step=int(seen.steps[0])), view.fails(1.5, 8.0))
    told = "Every batch has the same input, whatever its targets are."
    return Finding(found, ("input",), int(seen.steps[0]), told)


def _chosen_from(view: View) -> bool:
    """Whether the model answers for more samples than the loss asks: the nodes of a graph, say."""
    fact = view.loss
    shape = fact.prediction.shape if fact is not None and fact.prediction is not None else ()
    return bool(fact is not None and fact.batch and shape and shape[0] > fact.batch)


# Share of a batch that equals other samples of it; drawing with replacement from fewer than
# twice as many samples as a batch holds is below it.
COPIES: Final = 0.6


def _copies(view: View) -> Finding | None:
    """Batches that consist of few samples, each many times, with many different targets."""
    share = view.batch("input", m.B_REPEATED).finite()
    size, values = view.batch("input", m.B_SIZE).median(), view.batch("input", m.B_DISTINCT)
    if len(share) < 3 or not share.median() > COPIES or len(values) or len(view.models) > 1:
        return None
    if not size >= 2:
        return None
    if any(p.kind == "policy" for fact in view.facts.losses for p in fact.parts):
        return None  # environments that are reset together start in one state
    kinds = round(size * (1 - share.median()))
    text = f"of the {size:.0f} samples of a batch only {kinds} differ from one another"
    found = (evidence(text, 4.5, where="input", step=int(share.steps[0])), view.fails(1.5, 5.0))
    told = f"A batch holds the same {kinds} samples again and again, bit for bit."
    repair = (
        "Find where samples are stored or loaded: an array that is filled again must be copied "
        "when it is kept."
    )
    return Finding(found, ("input",), int(share.steps[0]), told, repair)


def _even(view: View) -> Finding | None:
    """Samples that do not change along one of their axes: one frame instead of a clip."""
    axis = view.batch("input", m.B_EVEN_AXIS).finite()
    if len(axis) < LOOKS or len(view.models) > 1 or len(set(axis.values)) > 1 or not axis.values[0]:
        return None
    text = f"along axis {axis.values[0]:.0f} of the input all entries are equal, in each of {len(axis)} batches"
    found = (evidence(text, 4.5, where="input", step=int(axis.steps[0])), view.fails(1.5, 5.0))
    told = f"The input holds one and the same slice all along axis {axis.values[0]:.0f}."
    repair = "Check the loading: an index that stays the same inside a loop, or a wrong repeat."
    return Finding(found, ("input",), int(axis.steps[0]), told, repair)
