"""Faults of depth: plain deep stacks, tiny batches under normalisation, heavy dropout."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.activations import RECURRENT, gradient_profile
from neuraldbg.core.causes.modes import BATCH_OF_ONE
from neuraldbg.core.facts import ModuleFact
from neuraldbg.core.raised import raised
from neuraldbg.core.view import BATCHNORM, DROPOUT, NORMALISATION, View, drop_probability

# Layers from which a plain stack counts as deep; He et al. (2015) see plain nets degrade
# between 20 and 56, sigmoid stacks fail from about 5.
DEEP = 8


# PyTorch weighs a new batch by 0.1; what other libraries call 0.99 or 0.999 is 0.01 or 0.001
# here. A half left of the start is far from any data.
SLOW_AVERAGE, LEFT = 0.01, 0.5
DROP_MUCH = 0.6
DROP_LAST = "Leave the last, incomplete batch out (drop_last=True), or use LayerNorm."


@cause(
    "depth_without_normalization",
    "A deep plain stack has neither normalisation nor skip connections.",
    explains="vanishing exploding not_learning collapsed zero_gradient",
    chain=(
        "each layer scales the signal by a factor off one",
        "over many layers the factor becomes a power",
        "gradients or activations vanish or explode with depth",
    ),
    repair="Add normalisation between the blocks (BatchNorm, LayerNorm) or skip connections.",
    experiment="add normalisation between blocks",
    rivals={
        "saturating_activation": "there the activations themselves are flat",
        "init_too_small": "there the initial weights are off",
    },
    references=("He et al. 2015", "Ioffe and Szegedy 2015"),
    yields_to="bad_bias_init init_too_large init_too_small saturating_activation "
    "unnormalized_input nonfinite_input eval_mode_training init_symmetric",
)
def _depth_without_normalization(view: View) -> Finding | None:
    layers = [x for x in view.layers if not x.kind.startswith("Embedding")]
    if len(layers) < DEEP or view.kinds(NORMALISATION):
        return None
    # The additions of a recurrence are its own.
    ops = view.loss.ops if view.loss and not view.kinds(RECURRENT) else ()
    if sum(op == "Add" for op in ops) >= len(layers) // 3:
        return None
    profile = gradient_profile(view)
    if len(profile) < DEEP:
        return None
    values = np.log10([v for _, v in profile])
    slope = float(np.polyfit(np.arange(len(values)), values, 1)[0])
    span = abs(slope) * len(values)
    spread = _signal_span(view, layers)
    found = [
        evidence(
            f"{len(layers)} layers in a row without normalisation or skip connection",
            1.5,
            where=layers[0].name,
        ),
        evidence(
            f"the gradient changes by a factor of {10**span:.2g} over the depth",
            float(np.clip(1.3 * (span - 1.5), -2.0, 3.0)),
            where=profile[0][0],
        ),
        evidence(
            f"the variation between samples changes {spread:.2g}-fold over the depth",
            float(np.clip(math.log10(max(spread, 1e-9)) - 1.0, -0.5, 2.0)),
        ),
        view.fails(2.5, 5.0),
    ]
    if view.trouble.level == 0.0:
        found.append(evidence("nothing fails that the depth would keep from learning", -2.0))
    return Finding(
        tuple(found),
        tuple(x.name for x in layers),
        0,
        f"{len(layers)} plain layers without normalisation: the signal fades with depth.",
    )


def _signal_span(view: View, layers: list[ModuleFact]) -> float:
    rms = [view.usual(view.module(x.name, m.ACT_RMS), 3) for x in layers]
    rms = [x for x in rms if math.isfinite(x) and x > 0]
    return max(rms) / min(rms) if rms else 1.0


@cause(
    "batchnorm_small_batch",
    "Batch normalisation works on too few samples.",
    explains="not_learning",
    chain=(
        "the statistics of a batch come from a handful of values",
        "they are mostly noise",
        "training is noisy and evaluation differs from it",
    ),
    repair="Use larger batches, or GroupNorm or LayerNorm.",
    experiment="larger batch, or another normalisation",
)
def _batchnorm_small_batch(view: View) -> Finding | None:
    norms = [x for x in view.kinds(BATCHNORM) if x.training is not False]
    single = raised(view, BATCH_OF_ONE, "a batch of one has no spread to divide by")
    if single is not None and not view.count(m.N_EVAL_TRAIN_MODE):
        names = tuple(x.name for x in norms)
        text = "Batch normalisation met a batch of one sample in training."
        return Finding((single,), names, single.step, text, DROP_LAST)
    size = view.batch("input", m.B_SIZE).median()
    if not norms or not size <= 4:
        return _never_settled(view, norms)
    found = [
        evidence(
            f"{len(norms)} batch normalisations see batches of {size:.0f}",
            4.0 - 0.7 * size + 1.0,
            where=norms[0].name,
        ),
        view.fails(1.5, 2.0),
    ]
    return Finding(
        tuple(found),
        tuple(x.name for x in norms),
        0,
        f"Batch normalisation with batches of {size:.0f}.",
    )


def _never_settled(view: View, norms: list[ModuleFact]) -> Finding | None:
    """Running statistics that keep their start: evaluation then normalises by 0 and 1."""
    weights = [(x, x.config.get("momentum")) for x in norms]
    slow = [(x, w) for x, w in weights if isinstance(w, float) and 0 < w < SLOW_AVERAGE]
    if not slow or not view.count(m.N_EVAL_FORWARDS):
        return None
    norm, weight = slow[0]
    left = (1 - weight) ** view.facts.run.steps
    if left < LEFT:
        return None
    text = (
        f"{norm.name} averages its statistics with momentum {weight:g}: after "
        f"{view.facts.run.steps} steps {left:.0%} of them is still the mean 0 and variance 1 of the "
        "start, and evaluation uses them"
    )
    names = tuple(x.name for x, _ in slow)
    told = f"The running statistics of {norm.name} have hardly left their start."
    repair = "Use momentum 0.1: torch weighs the new batch by it, other libraries the old average."
    return Finding((evidence(text, 5.5, where=norm.name, step=0),), names, 0, told, repair)


@cause(
    "excessive_dropout",
    "Dropout removes the signal.",
    explains="not_learning",
    chain=(
        "most of the signal is dropped at random",
        "what is left does not tell samples apart",
        "the training loss stays high",
    ),
    repair="Lower the drop probability to 0.1-0.5.",
    experiment="p = 0.1",
)
def _excessive_dropout(view: View) -> Finding | None:
    heavy = [
        x
        for x in view.kinds(DROPOUT)
        if drop_probability(x) >= DROP_MUCH and x.training is not False
    ]
    if not heavy:
        return None
    worst = max(heavy, key=drop_probability)
    kept = math.prod(1 - drop_probability(x) for x in heavy)
    found = [
        evidence(
            f"{worst.name} drops {drop_probability(worst):.0%} of its input (all together keep {kept:.1%})",
            min(2.0 + 2.5 * -math.log10(max(kept, 1e-4) / 0.4), 6.0),
            where=worst.name,
        ),
        view.fails(2.0, 4.0),
    ]
    return Finding(
        tuple(found),
        tuple(x.name for x in heavy),
        0,
        f"{worst.name} drops {drop_probability(worst):.0%} of the signal.",
    )
