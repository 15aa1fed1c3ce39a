"""Faults of the initial weights: scale and symmetry."""

from __future__ import annotations

import math
from collections.abc import Iterable

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.facts import Kind, ParamFact
from neuraldbg.core.view import WEIGHT_LAYERS, View

# Root mean square of a weight times sqrt(fan-in): 0.58 for PyTorch's default, 1 for
# Xavier, 1.41 for He. Only what is well outside speaks.
GAIN_HIGH, GAIN_LOW = 3.0, 0.15
# First loss over the loss of a constant guess.
FIRST_HIGH = 2.5
# Logits over the largest output of a layer, from which no layer has made them.
PRODUCT = 3.0
# Rows that are this close (in units of the weight's scale) are equal.
EQUAL = 1e-3


def untrained(params: Iterable[ParamFact]) -> str | None:
    """The first weight that is what the library starts layers with, if at least half of them are.

    `Linear` and convolutions start uniform within 1 / sqrt(fan_in); training spreads the
    largest entries beyond that bound almost at once.

    Returns:
        Its name; empty if most have left their start before the run; None if none tells.
    """
    known = [p for p in params if p.fan_in and p.init_absmax and len(p.shape) >= 2 and p.numel > 64]
    fresh = [p for p in known if 0.9 < (p.init_absmax or 0.0) * math.sqrt(p.fan_in or 1) < 1.001]
    if not known:
        return None
    return fresh[0].name if len(fresh) >= len(known) / 2 else ""


def gain(param: ParamFact) -> float:
    """Scale of a weight against the variance-preserving value; NaN if unknown."""
    if not param.fan_in or param.init_rms is None or len(param.shape) < 2:
        return float("nan")
    return param.init_rms * math.sqrt(param.fan_in)


@cause(
    "init_too_large",
    "The initial weights are too large.",
    explains="initial_loss nonfinite not_learning exploding saturated dead diverged vanishing zero_gradient",
    chain=(
        "signals grow from layer to layer at step 0",
        "the first loss is far above a constant guess",
        "units saturate or gradients explode",
    ),
    repair="Scale the initial weights by 1/sqrt(fan_in) (the library's default initialisation).",
    experiment="the library's default initialisation",
    rivals={
        "unnormalized_input": "there the input is large and the weights are usual",
        "lr_too_high": "there the first loss is sound and the second is not",
    },
    references=("Glorot and Bengio 2010", "He et al. 2015"),
    yields_to="unnormalized_input nonfinite_input bad_bias_init",
)
def _init_too_large(view: View) -> Finding | None:
    trained = [
        p
        for p in view.facts.params
        if len(p.shape) >= 2 and p.requires_grad and not _learnt_tokens(view, p)
    ]
    scales = {
        p.name: gain(p) for p in trained if math.isfinite(gain(p)) and not _lookup_only(view, p)
    }
    large = {n: g for n, g in scales.items() if g > GAIN_HIGH}
    if not large:
        return None
    name, worst = max(large.items(), key=lambda item: item[1])
    weight = min(1.0 + 2.5 * math.log10(worst / GAIN_HIGH), 3.5)
    found = [
        evidence(
            f"{name} starts at {worst:.3g} times the variance-preserving scale",
            weight,
            where=name,
            step=0,
            gain=worst,
        )
    ]
    first = first_loss(view)
    if view.path.chance and math.isfinite(first):
        over = first / view.path.chance
        if over > FIRST_HIGH:
            found.append(
                evidence(
                    f"the first loss {first:.3g} is {over:.3g} times that of a constant guess",
                    min(1.5 + 2 * math.log10(over), 4.5),
                    step=0,
                )
            )
        else:
            found.append(evidence(f"the first loss {first:.3g} is sound", -2.5))
    elif not math.isfinite(first) and len(view.path.series):
        found.append(evidence("the very first loss is not finite", 2.0, step=0))
    growth = _growth(view)
    if growth > 30:
        found.append(
            evidence(
                f"the signal grows {growth:.3g}-fold from input to output at step 0",
                min(math.log10(growth), 3.0),
                step=0,
            )
        )
    found.append(view.fails(1.5, 2.5))
    return Finding(
        tuple(found),
        (name.rpartition(".")[0] or name, name),
        0,
        f"{name} is initialised {worst / 1.0:.3g} times too large.",
    )


def _lookup_only(view: View, param: ParamFact) -> bool:
    """An embedding that is only looked up may have any scale; one that makes the logits may not."""
    module = view.record.module(param.module)
    if module is None or not module.kind.startswith("Embedding") or _multiplied(view):
        return False
    # Tied: the logits have one entry for each row, and no other layer makes that many.
    prediction = view.loss.prediction if view.loss is not None else None
    rows = param.shape[0]
    makes_logits = prediction is not None and rows in prediction.shape[1:]
    others = any(
        p.shape[:1] == (rows,) and p.name != param.name
        for x in view.layers
        for p in view.params_of(x.name)
    )
    return not makes_logits or others


def _multiplied(view: View) -> bool:
    """Whether the logits are far larger than what any layer gives: products of lookups make them.

    Factorisation machines and two towers multiply what they look up, and no layer behind them
    brings the scale down.
    """
    chance = view.path.chance
    if chance is None or not first_loss(view) > FIRST_HIGH * chance:
        return False
    made = view.record.series(Kind.LOSS, "prediction", m.L_PRED_STD).finite().values[:1]
    given = [
        view.usual(view.module(x.name, m.ACT_RMS), 1)
        for x in view.layers
        if not x.kind.startswith("Embedding")
    ]
    largest = max((x for x in given if math.isfinite(x)), default=0.0)
    return len(made) > 0 and bool(made[0] > PRODUCT * max(largest, 1.0))


def first_loss(view: View) -> float:
    """The loss before any update."""
    values = view.path.series.values
    return float(values[0]) if len(values) else float("nan")


def _growth(view: View) -> float:
    rms = [view.usual(view.module(x.name, m.ACT_RMS), 1) for x in view.layers]
    rms = [x for x in rms if x > 0]
    return max(rms) / rms[0] if len(rms) > 1 else 1.0


@cause(
    "init_too_small",
    "The initial weights are too small.",
    explains="not_learning vanishing collapsed zero_gradient",
    chain=(
        "signals shrink from layer to layer at step 0",
        "the output does not depend on the input",
        "gradients vanish",
    ),
    repair="Scale the initial weights by 1/sqrt(fan_in) (the library's default initialisation).",
    experiment="the library's default initialisation",
)
def _init_too_small(view: View) -> Finding | None:
    layers = [p for p in view.weights if view.record.module(p.module) is not None]
    gains = {p.name: _least_gain(view, p) for p in layers if p.init_rms}
    small = {name: g for name, g in gains.items() if g < GAIN_LOW}
    if not small or len(small) < max(1, len(layers) // 3):
        return None
    name, worst = min(small.items(), key=lambda item: item[1])
    weight = min(1.0 + 1.2 * math.log10(GAIN_LOW / worst) + 0.5 * (len(small) > 2), 3.5)
    found = [
        evidence(
            f"{len(small)} of {len(layers)} weights start under {GAIN_LOW} of the variance-preserving scale ({name}: {worst:.2g})",
            weight,
            where=name,
            step=0,
        ),
        view.fails(2.5, 2.5),
    ]
    return Finding(
        tuple(found),
        (name.rpartition(".")[0] or name, name),
        0,
        f"{name} is initialised too small ({worst:.2g} of the sound scale).",
    )


def _least_gain(view: View, param: ParamFact) -> float:
    """The scale of a weight, for the layout in which it is largest where that is not known.

    A matrix for each expert or capsule may stand with either side in front.
    """
    module = view.record.module(param.module)
    if len(param.shape) < 3 or module is None or module.kind in WEIGHT_LAYERS or not param.init_rms:
        return gain(param)
    return param.init_rms * math.sqrt(max(param.shape[-2:]))


def _learnt_tokens(view: View, param: ParamFact) -> bool:
    """Whether it is one row of tokens, queries or positions: they multiply nothing."""
    module = view.record.module(param.module)
    return param.shape[0] == 1 and (module is None or module.kind not in WEIGHT_LAYERS)


@cause(
    "init_symmetric",
    "Units start equal and stay equal.",
    explains="not_learning collapsed",
    chain=(
        "all rows of a weight are the same",
        "all units get the same gradient",
        "they stay the same: the layer has one unit in effect",
    ),
    repair="Initialise the weights at random (reset_parameters(), kaiming_uniform_), not with a constant.",
    experiment="default initialisation",
    references=("Goodfellow et al., Deep Learning, 8.4",),
    yields_to="broken_graph params_not_optimized missing_optimizer_step",
)
def _init_symmetric(view: View) -> Finding | None:
    equal = []
    for p in view.weights:
        spread = view.param(p.name, m.P_ROWS).finite()
        if p.shape[0] > 1 and len(spread) >= 3 and spread.values[-1] < EQUAL:
            equal.append((p.name, float(spread.values[-1])))
    if not equal:
        return _symmetric_start(view)
    name = equal[0][0]
    moved = max(view.usual(view.param(n, m.P_RATIO)) for n, _ in equal)
    found = [
        evidence(
            f"all rows of {name} are equal at the start and still equal at the end (spread {equal[0][1]:.1g})",
            5.0,
            where=name,
            step=0,
        )
    ]
    if moved > 0:
        found.append(evidence("its weights moved, all rows alike", 1.5, where=name))
    found.append(view.fails(1.5, 2.0))
    names = tuple(n.rpartition(".")[0] or n for n, _ in equal)
    return Finding(tuple(found), names, 0, f"The units of {names[0]} start equal and stay equal.")


def _symmetric_start(view: View) -> Finding | None:
    """Most weights start with equal rows, and what breaks the symmetry came too late."""
    # The rows of a table are no units.
    tables = {x.name for x in view.facts.modules if x.kind.startswith("Embedding")}
    rows = [p for p in view.weights if p.shape[0] > 1 and p.module not in tables]
    several = [p for p in rows if p.row_spread is not None]
    same = [p for p in several if p.row_spread is not None and p.row_spread < EQUAL]
    # Layers that start at zero behind others that do not (heads, adapters, gates, the ends
    # of coupling nets) are a known, sound practice.
    if len(same) < 2 or len(same) < len(several) / 2 or not _linked(same):
        return None
    text = f"all rows are equal at the start in {len(same)} of {len(several)} weights"
    found = (evidence(text, 4.5, where=same[0].name, step=0), view.fails(1.5, 2.0))
    names = tuple(p.module or p.name for p in same)
    return Finding(found, names, 0, f"The units of {names[0]} start equal.")


def _linked(same: list[ParamFact]) -> bool:
    """Whether weights with equal rows are not zero, or feed one another."""
    sizes = {p.shape[0] for p in same}
    return any(p.init_rms for p in same) or any(p.shape[1] in sizes for p in same)
