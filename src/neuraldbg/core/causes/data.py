"""Faults of the data: scale, missing values, labels, order."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.view import View

LARGE_FEATURE = 10.0
MAJORITY = 0.9


@cause(
    "unnormalized_input",
    "Raw features with large or very unequal scales enter the model.",
    explains="not_learning diverged nonfinite initial_loss saturated dead oscillating huge_updates exploding plateau",
    chain=("some features are orders of magnitude larger than others", "the first layer saturates or its gradient explodes", "no learning rate suits all weights"),
    repair="Standardise the input: subtract the mean and divide by the standard deviation of each feature.",
    experiment="standardise the input",
    rivals={"init_too_large": "there the input is fine and the weights are large", "lr_too_high": "there the input is fine"},
    references=("LeCun et al., Efficient BackProp, 1998",),
)
def unnormalized_input(view: View) -> Finding | None:
    best = None
    for name, series in view.record.each(Kind.BATCH, m.B_FEATURE_RMS):
        if name.startswith("input") and (best is None or series.median() > best[1]):
            best = (name, series.median())
    if best is None or not best[1] > LARGE_FEATURE:
        return None
    name, scale = best
    spread = view.batch(name, m.B_FEATURE_SPREAD).median()
    found = [evidence(f"the largest feature of {name} has a scale of {scale:.3g}", min(1.5 + 1.2 * math.log10(scale / LARGE_FEATURE), 4.0), where=name, step=0)]
    if spread > 20:
        found.append(evidence(f"it is {spread:.3g} times that of a typical feature", 1.0))
    found.append(view.fails(2.5, 4.0))
    first = view.layers[0].name if view.layers else "input"
    return Finding(tuple(found), (first,), 0, f"The input is not normalised: features of scale {scale:.3g} enter {first}.")


@cause(
    "unscaled_targets",
    "Regression targets have a scale far from the output's.",
    explains="not_learning initial_loss slow huge_updates diverged exploding",
    chain=("targets are orders of magnitude larger than what the model gives at first", "the loss and its gradient are huge, or the bias needs the whole run to get there"),
    repair="Standardise the targets (and undo it on the predictions).",
    experiment="standardise the target",
)
def unscaled_targets(view: View) -> Finding | None:
    if view.loss is None or view.loss.kind not in ("mse", "l1", "smooth_l1", "custom"):
        return None
    scale = math.hypot(view.batch("target", m.B_MEAN).median(), view.batch("target", m.B_STD).median())
    if not scale > 20:
        return None
    found = [evidence(f"the targets have a scale of {scale:.3g}", min(1.0 + 1.5 * math.log10(scale / 20), 4.5), where="target", step=0), view.fails(2.5, 3.0)]
    return Finding(tuple(found), (), 0, f"The targets have a scale of {scale:.3g}.")


@cause(
    "nonfinite_input",
    "The data holds NaN or infinite values.",
    explains="nonfinite",
    chain=("a batch brings a NaN or infinity", "every sum it enters becomes non-finite", "one backward pass spoils all weights"),
    repair="Find and fill or drop the non-finite entries before training.",
    experiment="drop the samples",
    rivals={"nonfinite_operation": "there the data is finite"},
)
def nonfinite_input(view: View) -> Finding | None:
    for name, series in view.record.each(Kind.BATCH, m.B_NONFINITE):
        bad = np.flatnonzero(series.values > 0)
        if not len(bad):
            continue
        step, count = int(series.steps[bad[0]]), float(series.values[bad[0]])
        found = [evidence(f"{name} holds {count:.0f} non-finite entries at step {step} ({len(bad)} of {len(series)} batches looked at)", 7.0, where=name, step=step)]
        if view.trouble.kind == "nonfinite":
            found.append(evidence("the loss is not finite from then on", 1.5))
        return Finding(tuple(found), (name,), step, f"The {name} holds NaN or infinite values from step {step} on.")
    return None


@cause(
    "outlier_batch",
    "A few corrupted samples have huge values.",
    explains="spiking nonfinite diverged",
    chain=("a batch holds values far outside the usual range", "its loss and gradient are huge", "one step throws the weights away"),
    repair="Find and drop or clip the outlying samples.",
    experiment="skip these batches",
)
def outlier_batch(view: View) -> Finding | None:
    outlying = [e for e in view.events if e.after == "outlier"]
    if not outlying:
        return None
    e = outlying[0]
    size, usual = float(e.metadata["largest"] or 0), float(e.metadata["usual"] or 1)
    found = [evidence(f"{e.where} reaches {size:.3g} at step {e.step}, usually {usual:.3g}", min(2.0 + math.log10(size / usual), 5.0), where=e.where, step=e.step)]
    spikes = [x for x in view.events if x.after in ("spiking", "nonfinite", "diverging") and 0 <= x.step - e.step <= 3]
    found.append(evidence("the loss spikes right after", 2.5) if spikes else evidence("the loss does not react", -3.0))
    return Finding(tuple(found), (e.where,), e.step, f"A batch at step {e.step} holds values {size / usual:.3g} times the usual.")


@cause(
    "label_noise",
    "The labels are random, shifted or misaligned.",
    explains="not_learning",
    chain=("labels have nothing to do with the inputs", "gradients of different batches do not agree", "the loss stays at the entropy of the labels"),
    repair="Check that sample k and label k belong together (sort both sides the same way).",
    rivals={"lr_too_low": "there the updates are tiny"},
)
def label_noise(view: View) -> Finding | None:
    if view.trouble.kind != "not_learning" or not view.ratios or view.loss is None:
        return None
    typical = float(np.median(list(view.ratios.values())))
    cosines = [view.usual(view.param(p.name, m.P_COSINE)) for p in view.weights]
    cosines = [c for c in cosines if math.isfinite(c)]
    if not cosines or not 3e-4 < typical < 0.1 or view.path.gain is None:
        return None
    agree = float(np.median(cosines))
    found = [
        view.fails(2.5, 5.0),
        evidence(f"updates are sound ({typical:.2g} of the weights)", 0.7),
        evidence(f"gradients of successive batches hardly agree (cosine {agree:.2f})", 1.8 if abs(agree) < 0.15 else -1.5),
    ]
    dead = any(e.after in ("vanishing", "dead", "zero", "collapsed", "saturated", "absent") for e in view.events)
    found.append(evidence("no layer is dead, saturated or cut off" if not dead else "some layers are unhealthy", 0.8 if not dead else -2.0))
    first = view.path.series.values[0]
    near = view.path.chance is not None and abs(first / view.path.chance - 1) < 0.3
    found.append(evidence("the loss starts and stays at the entropy of the labels", 1.0 if near else -1.0))
    return Finding(tuple(found), (), 0, "The labels seem unrelated to the inputs.")


@cause(
    "degenerate_targets",
    "The targets are constant, or nearly so.",
    explains="",
    chain=("all targets are the same", "a constant prediction is perfect", "the loss drops at once and the model is useless"),
    repair="Check the targets: a wrong dtype or a wrong column makes them constant.",
)
def degenerate_targets(view: View) -> Finding | None:
    std = view.batch("target", m.B_STD).finite()
    distinct = view.batch("target", m.B_DISTINCT).finite()
    low, high = view.batch("target", m.B_LOW).finite(), view.batch("target", m.B_HIGH).finite()
    if len(std) < 3:
        return None
    scale = max(float(np.abs(high.values).max()), float(np.abs(low.values).max()), 1e-12)
    if float(std.values.max()) <= 1e-6 * scale and float(np.ptp(low.values)) <= 1e-6 * scale:
        found = [evidence(f"every target of {len(std)} batches is {low.values[0]:.3g}", 8.0, where="target", step=0)]
        return Finding(tuple(found), ("target",), 0, f"All targets are {low.values[0]:.3g}.")
    if len(distinct) and float(distinct.values.max()) == 1 and len(distinct) > 5 and float(np.ptp(low.values)) == 0:
        return Finding((evidence("every batch has one and the same label", 6.0, where="target"),), ("target",), 0)
    return None


@cause(
    "class_imbalance",
    "One class dominates.",
    explains="plateau",
    chain=("most samples are of one class", "predicting it always is nearly right", "the others are never learnt"),
    repair="Weight the classes (or sample them evenly).",
    experiment="class weights",
)
def class_imbalance(view: View) -> Finding | None:
    majority = view.batch("target", m.B_MAJORITY).median()
    distinct = view.batch("target", m.B_DISTINCT).median()
    if not majority > MAJORITY or not 2 <= distinct <= 100:
        return None
    found = [evidence(f"{majority:.0%} of the labels of a batch are one class", 2.0 + 8.0 * (majority - MAJORITY), where="target"), view.fails(1.5, 1.0)]
    return Finding(tuple(found), ("target",), 0, f"One class holds {majority:.0%} of the labels.")


@cause(
    "unshuffled_data",
    "Batches come in the order of the classes.",
    explains="not_learning oscillating spiking",
    chain=("a batch holds one class only", "each step makes the model predict that class", "it forgets the others"),
    repair="Shuffle the training data (shuffle=True).",
    experiment="shuffle",
)
def unshuffled_data(view: View) -> Finding | None:
    majority = view.batch("target", m.B_MAJORITY).finite()
    mean = view.batch("target", m.B_MEAN).finite()
    moves = view.batch("target", m.B_TRANSITIONS).median()
    size = view.batch("target", m.B_SIZE).median()
    if len(majority) < 10 or not size >= 4:
        return None
    between, within = float(mean.values.std()), view.batch("target", m.B_STD).median()
    pure = majority.median()
    if pure < 0.8 or between < 2 * max(within, 1e-9) / math.sqrt(size):
        return None
    found = [
        evidence(f"{pure:.0%} of the labels of a batch are one class, and the class changes from batch to batch", 5.0, where="target", step=0),
        evidence(f"neighbouring samples differ in {moves:.0%} of the cases", 1.0 if moves < 0.1 else -1.0),
        view.fails(1.5, 1.5),
    ]
    return Finding(tuple(found), ("target",), 0, "Batches come in the order of the classes.")


@cause(
    "degenerate_input",
    "The input is constant, zeroed or repeated.",
    explains="not_learning",
    chain=("all samples look the same to the model", "nothing can be learnt from them"),
    repair="Check the loading and preprocessing of the input.",
)
def degenerate_input(view: View) -> Finding | None:
    spread, size = view.batch("input", m.B_SAMPLE_STD).finite(), view.batch("input", m.B_SIZE).median()
    if len(spread) < 3 or not size >= 2:
        return None
    if spread.median() > 1e-3:
        return None
    found = [evidence(f"the samples of a batch differ by {spread.median():.2g} of their scale", 5.0, where="input", step=0), view.fails(1.5, 2.0)]
    return Finding(tuple(found), ("input",), 0, "All samples of a batch are (nearly) the same.")


@cause(
    "distribution_shift",
    "The statistics of the data change within the run.",
    explains="spiking diverged plateau",
    chain=("the inputs change their mean or scale at some step", "what was learnt before no longer fits", "the loss rises"),
    repair="Find out what changed in the data at that step.",
)
def distribution_shift(view: View) -> Finding | None:
    for metric, word in ((m.B_MEAN, "mean"), (m.B_STD, "spread")):
        series = view.batch("input", metric).finite()
        if len(series) < 40:
            continue
        at, strength = change_point(series.values)
        noise = 1.4826 * float(np.median(np.abs(np.diff(series.values)))) + 1e-12
        typical = view.batch("input", m.B_STD).median()
        if strength > 12 * noise and strength > 0.3 * typical:
            step = int(series.steps[at])
            found = [evidence(f"the {word} of the input moves by {strength:.3g} at step {step} ({strength / noise:.0f} times its noise)", 4.5, where="input", step=step), view.fails(1.0, 1.5)]
            return Finding(tuple(found), ("input",), step, f"The input changes at step {step}.")
    return None


def change_point(values: np.ndarray) -> tuple[int, float]:
    """The split with the largest difference of medians, away from the ends."""
    n = len(values)
    places = range(n // 8, n - n // 8)
    gaps = [abs(float(np.median(values[:i]) - np.median(values[i:]))) for i in places]
    best = int(np.argmax(gaps))
    return n // 8 + best, gaps[best]
