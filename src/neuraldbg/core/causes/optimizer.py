"""Faults of the optimizer's settings: decay, momentum, clipping, epsilon."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.learning_rate import rooted
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.view import View

# Optimizers that add the decay to the gradient and then divide by the size of the sum: a decay
# term as large as the gradient takes half of each step, however small the rate (Loshchilov and
# Hutter 2019). A decay under the usual range is in balance with any gradient that has run out.
DIVIDING: Final = frozenset({"Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop"})
NOTABLE: Final = 1e-3
OUTWEIGHS: Final = 0.5  # the decay term over the gradient: a third of their sum


@cause(
    "excessive_weight_decay",
    "Weight decay outweighs the gradient.",
    explains="not_learning",
    chain=(
        "decay pulls the weights to zero faster than the gradient builds them",
        "the output collapses to a constant",
    ),
    repair="Lower weight_decay (1e-4 to 1e-2 is usual).",
    experiment="weight decay 0",
    needs_update=True,
)
def _excessive_weight_decay(view: View) -> Finding | None:
    decay = view.setting("weight_decay", 0.0)
    if not decay > 0 or not view.weights:
        return None
    left, ratio = _shrunk(view), _pull(view, decay)
    if not math.isfinite(left) or not math.isfinite(ratio):
        return None
    kind = view.facts.optimizers[0].kind
    balanced = kind in DIVIDING and decay >= NOTABLE and ratio > OUTWEIGHS
    found = [_set(view, decay, kind, balanced=balanced)]
    if left < 0.7:
        text = f"the weights shrank to {left:.2g} of their start"
        found.append(evidence(text, 2.5 if left < 0.4 else 1.5))
    elif not balanced:
        found.append(evidence(f"the weights kept {left:.2g} of their size", -2.0))
    if kind != "AdamW" and ratio > OUTWEIGHS:
        text = f"the decay term is {ratio:.2g} of the gradient"
        found.append(evidence(text, 3.0 if balanced else 1.5))
    found.append(view.fails(1.5, 3.0))
    told = f"weight_decay {decay:g} shrinks the weights faster than they learn."
    return Finding(tuple(found), (), 0, told)


def _set(view: View, decay: float, kind: str, *, balanced: bool) -> Evidence:
    """How far the setting is from the usual: no matter where it is measured to outweigh."""
    per_step = decay * view.setting("lr", 0.0) if kind in ("SGD", "AdamW") else decay
    strong = 0.05 if kind == "SGD" else 0.5 if kind == "AdamW" else 0.03
    size = float(np.clip(2.5 * math.log10(decay / strong), -4.0, 3.5))
    text = f"weight_decay {decay:g} with {kind} (lr times decay {per_step:.2g})"
    return evidence(text, max(size, 0.0) if balanced else size)


def _pull(view: View, decay: float) -> float:
    """The decay term over the gradient, of a weight in the middle; NaN if there is none."""
    sizes = [
        (view.usual(view.param(p.name, m.P_WEIGHT)), view.usual(view.param(p.name, m.P_GRAD)))
        for p in view.weights
    ]
    pulls = [decay * weight / max(grad, 1e-30) for weight, grad in sizes]
    return _middle([x for x in pulls if math.isfinite(x)])


def _shrunk(view: View) -> float:
    """What is left of the size of a weight in the middle; NaN if it was not read."""
    return _middle([x for p in view.weights if math.isfinite(x := _shrink(view, p.name))])


def _middle(values: list[float]) -> float:
    return float(np.median(values)) if values else math.nan


def _shrink(view: View, name: str) -> float:
    values = view.param(name, m.P_WEIGHT).finite().values
    return float(values[-1] / values[0]) if len(values) > 5 and values[0] > 0 else float("nan")


@cause(
    "excessive_momentum",
    "Momentum is so high that the iterate overshoots.",
    explains="diverged nonfinite not_learning huge_updates",
    chain=(
        "steps keep their direction for hundreds of steps",
        "the iterate overshoots and swings back slowly",
    ),
    repair="Use momentum 0.9 (beta1 0.9).",
    experiment="momentum 0.9 / beta1 0.9",
    needs_update=True,
)
def _excessive_momentum(view: View) -> Finding | None:
    momentum = view.setting("momentum", view.setting("betas.0", 0.0))
    if not momentum > 0.95:
        return None
    weight = float(np.clip(1.5 + 2.5 * math.log10(0.05 / max(1 - momentum, 1e-4)), 1.0, 5.0))
    found = [
        evidence(
            f"momentum {momentum:g} averages over {1 / max(1 - momentum, 1e-9):.0f} steps", weight
        ),
        view.fails(2.0, 3.5),
    ]
    return Finding(tuple(found), (), 0, f"Momentum {momentum:g} overshoots.")


# Updates that are this share of the weights: a tenth of the usual 1e-3.
CRAWL: Final = 1e-4


@cause(
    "excessive_clipping",
    "Clipping scales every gradient down by orders of magnitude.",
    explains="not_learning tiny_updates",
    chain=(
        "the norm before clipping is far above the limit at every step",
        "the clipped gradient is a tiny fraction",
        "the weights hardly move",
    ),
    repair="Raise the clipping limit to about the usual gradient norm, or remove clipping.",
    experiment="no clipping",
    rivals={
        "clip_before_unscale": "there the gradients still carry the loss scale when they are clipped"
    },
    needs_update=True,
)
def _excessive_clipping(view: View) -> Finding | None:
    norm = view.record.series(Kind.OPTIMIZER, "0", m.O_CLIP_NORM).finite()
    limit = view.record.series(Kind.OPTIMIZER, "0", m.O_CLIP_LIMIT).median()
    if len(norm) < 3 or not limit > 0:
        return None
    factor = float(np.quantile(norm.values, 0.2)) / limit
    if factor < 10 or view.count(m.N_CLIP_BEFORE_UNSCALE):
        return None
    found = [
        evidence(
            f"the gradient norm is {factor:.3g} times the limit {limit:g} in four of five steps",
            min(1.5 * math.log10(factor), 4.5),
        ),
    ]
    root = None if view.adaptive else rooted(view)
    found += [view.fails(2.0, 4.0)] if root is None else [view.fails(2.0, 1.0), root]
    if view.adaptive:
        found.append(
            evidence("the optimizer rescales gradients, so constant clipping changes little", -3.0)
        )
    elif view.pace < CRAWL:
        found.append(evidence(f"what is left moves the weights by {view.pace:.2g} in a step", 1.5))
    return Finding(
        tuple(found),
        (),
        int(norm.steps[0]),
        f"Clipping to {limit:g} leaves 1/{factor:.3g} of the gradient.",
    )


@cause(
    "optimizer_misconfigured",
    "Settings of the optimizer make its steps useless.",
    explains="not_learning tiny_updates nonfinite",
    chain=("eps or betas are far from sound", "the preconditioned step vanishes or goes stale"),
    repair="Use the optimizer's default eps and betas.",
    experiment="default settings",
    needs_update=True,
)
def _optimizer_misconfigured(view: View) -> Finding | None:
    eps, beta2 = view.setting("eps"), view.setting("betas.1", 0.999)
    found = []
    if view.adaptive and eps >= 1e-4:
        grads = [
            view.usual(view.param(p.name, m.P_GRAD)) / math.sqrt(max(p.numel, 1))
            for p in view.weights
        ]
        grads = [g for g in grads if math.isfinite(g)]
        rms = float(np.median(grads)) if grads else float("nan")
        if rms > 0 and eps > 3 * rms:
            weight = float(np.clip(2.0 + 1.5 * math.log10(eps / rms), 2.0, 5.0))
            found.append(
                evidence(
                    f"eps {eps:g} is {eps / rms:.3g} times the gradient's scale and swallows it",
                    weight,
                )
            )
    if view.adaptive and (beta2 < 0.5 or beta2 > 0.99999):
        found.append(evidence(f"beta2 {beta2:g} is far from sound (0.9 to 0.9999)", 5.0))
    summary = f"The optimizer's settings (eps {eps:g}, beta2 {beta2:g}) defeat its steps."
    anew = _made_anew(view)
    if anew is not None:
        found.append(anew)
        summary = "The optimizer is made anew for nearly every step, and forgets its moments."
    if not found:
        return None
    found.append(view.fails(2.0, 4.0))
    repair = REMADE_REPAIR if anew is not None else ""
    return Finding(tuple(found), (), 0, summary, repair)


REMADE_REPAIR: Final = (
    "Make the optimizer once, before the loop: each new one starts without moments."
)
# Share of the steps that a new optimizer takes, from which none ever builds up its moments.
MADE_ANEW: Final = 0.5


def _made_anew(view: View) -> Evidence | None:
    steps, anew = view.count(m.N_STEPS), view.count(m.N_RENEWED)
    remembers = view.adaptive or view.setting("momentum", 0.0) > 0
    if not remembers or not steps or anew < MADE_ANEW * steps:
        return None
    text = (
        f"{anew:,} of {steps:,} steps were the first of an optimizer made for the same parameters"
    )
    return evidence(text, 3.0)
