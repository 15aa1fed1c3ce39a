"""Faults of how the loss is put together: shapes and reductions."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.output import last_module
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import BINARY, REGRESSION, Kind, LossFact, LossPart
from neuraldbg.core.view import View


@cause(
    "loss_shape_broadcast",
    "Prediction and target broadcast against each other in the loss.",
    explains="not_learning",
    chain=(
        "shapes (N, 1) and (N,) become (N, N)",
        "every prediction is compared with every target",
        "the best answer is one constant for all samples",
    ),
    repair="Give prediction and target the same shape (squeeze(-1) or unsqueeze(-1)).",
    experiment="equal shapes",
)
def _loss_shape_broadcast(view: View) -> Finding | None:
    wide = [f for f in view.facts.losses if f.broadcast is not None]
    if not wide or wide[0].broadcast is None:
        return None
    a, b = wide[0].broadcast
    found = [
        evidence(
            f"shapes {a} and {b} meet at the loss and broadcast to a square",
            7.5,
            where="loss",
            step=0,
        )
    ]
    last = last_module(view)
    where = _heads(view) or ((last.name,) if last else ())
    return Finding(
        tuple(found), where, 0, f"Shapes {a} and {b} broadcast against each other in the loss."
    )


def _heads(view: View) -> tuple[str, ...]:
    """Layers with one output: those whose result can lose or gain a dimension."""
    single = [x.name for x in view.layers if x.config.get("out_features") == 1]
    return tuple(reversed(single))


@cause(
    "loss_reduction_scale",
    "A summed or mis-scaled loss makes gradients too large or too small by about the batch size.",
    explains="diverged nonfinite not_learning huge_updates tiny_updates exploding dead zero_gradient",
    chain=(
        "the loss is summed over the batch (or its terms are reduced differently)",
        "gradients scale with the batch size",
        "updates are too large, or one term drowns the other",
    ),
    repair="Reduce every term the same way: the mean over samples.",
    experiment="mean reduction",
    rivals={"lr_too_high": "there the loss is a mean and only the rate is off"},
)
def _loss_reduction_scale(view: View) -> Finding | None:
    fact = view.loss
    if fact is None:
        return None
    found = (
        _summed(view, fact)
        + _mixed(fact)
        + _drowned(view, fact)
        + _divided(view, fact)
        + _accumulated(view, fact)
    )
    if not found:
        return None
    return Finding(tuple(found), (), 0, found[0].text[0].upper() + found[0].text[1:] + ".")


# Batches whose undivided gradients make a step several times what each of them would.
MANY_PASSES = 4.0
# A part that counts this many times a mean over the same entries drowns the others.
DROWNS = 20.0
ERRORS = REGRESSION | BINARY
FEATURES = 16  # entries of a sample, from which their mean is far less than their sum
LATEST = 5  # looks
# Predictions that differ by less than this share of what targets do are all the same answer.
SAME = 0.25


def _weight_of(part: LossPart) -> float:
    """What a part counts, as a multiple of the mean over its entries; NaN if unknown."""
    if part.factor is None or part.reduction not in ("mean", "sum"):
        return math.nan
    return abs(part.factor) * (part.entries if part.reduction == "sum" else 1)


def _summed(view: View, fact: LossFact) -> list[Evidence]:
    """The whole loss is a sum over the batch."""
    if not fact.batch or fact.batch < 8 or not fact.parts:
        return []
    first = fact.parts[0]
    if first.reduction != "sum" or first.factor is None or abs(first.factor) * fact.batch < 8:
        return []
    weight = 1.0 + 1.2 * math.log10(fact.batch / 8)
    if view.adaptive:
        weight -= 2.0
    return [evidence(f"the loss is a sum over {fact.batch} samples", weight), view.fails(2.5, 5.0)]


def _accumulated(view: View, fact: LossFact) -> list[Evidence]:
    """Gradients of several batches are added up, and none of their means is divided."""
    passes = view.record.series(Kind.RUN, "", m.R_BACKWARDS).median()
    factor = fact.parts[0].factor if len(fact.parts) == 1 else None
    closures = any(o.kind == "LBFGS" for o in view.facts.optimizers)
    if (
        not passes >= MANY_PASSES
        or factor is None
        or abs(factor) * passes < MANY_PASSES
        or closures
    ):
        return []
    if len(view.facts.losses) > 1 or fact.parts[0].reduction != "mean":
        return []
    weight = 1.0 + 1.2 * math.log10(abs(factor) * passes / MANY_PASSES)
    if view.adaptive:
        weight -= 2.0
    text = f"the gradients of {passes:.0f} batches are added up in a step, each of a mean loss"
    return [evidence(text, weight), view.fails(2.5, 5.0)]


def _divided(view: View, fact: LossFact) -> list[Evidence]:
    """A mean that is divided once more, so that the gradient is too small by that."""
    factor = fact.parts[0].factor if len(fact.parts) == 1 else None
    if factor is None or fact.parts[0].reduction not in ("mean", "normalised_sum"):
        return []
    if not 0 < factor < 1 / 16 or view.adaptive:
        return []
    weight = min(1.5 - math.log10(16 * factor), 4.5)
    return [evidence(f"the mean loss is scaled by {factor:.3g}", weight), view.fails(2.5, 5.0)]


def _mixed(fact: LossFact) -> list[Evidence]:
    """A mean next to an undivided sum among the parts of one loss."""
    means = [p for p in fact.parts if p.reduction == "mean"]
    heavy = [p for p in fact.parts if p.reduction == "sum" and _weight_of(p) > DROWNS]
    if not means or not heavy:
        return []
    text = (
        f"one part of the loss is a mean over {means[0].entries} entries, another a sum over "
        f"{heavy[0].entries} that counts {_weight_of(heavy[0]):.3g} times a mean"
    )
    return [evidence(text, 5.0)]


def _drowned(view: View, fact: LossFact) -> list[Evidence]:
    """A mean over all entries next to a sum over features, and predictions that say one thing.

    So a variational autoencoder collapses: its code costs more than its picture gains.
    """
    averaged = [p for p in fact.parts if p.kind in ERRORS and p.reduction == "mean" and p.factor]
    summed = [p for p in fact.parts if p.reduction == "mean_of_sums" and p.factor]
    if not averaged or not summed or not fact.batch:
        return []
    part, features = averaged[0], averaged[0].entries / fact.batch
    if not features >= FEATURES or abs(part.factor or 0.0) > features / 4:
        return []
    made = view.record.series(Kind.LOSS, "prediction", m.L_PRED_SAMPLE_STD).finite().values
    asked = view.batch("target", m.B_SAMPLE_STD).median() * view.target_scale
    if len(made) < LATEST or not asked > 0:
        return []
    share = float(np.median(made[-LATEST:])) / asked
    if share > SAME:
        return []
    text = (
        f"one part of the loss is a mean over {features:.0f} entries of a sample, another a sum, and "
        f"the predictions differ by {share:.0%} of what the targets do from sample to sample"
    )
    return [evidence(text, 6.0)]
