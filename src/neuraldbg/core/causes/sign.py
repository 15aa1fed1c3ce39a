"""The sign of the objective: what should fall rises, or the other way round."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import BINARY, REGRESSION, LossFact
from neuraldbg.core.view import View


@cause(
    "wrong_update_sign",
    "The objective is maximised instead of minimised.",
    explains="diverged not_learning",
    chain=("each step climbs the loss", "the loss grows without bound"),
    repair="Minimise the loss: remove the minus sign, or maximize=True.",
    experiment="negate the loss",
    rivals={"lr_too_high": "there the loss falls at a smaller rate"},
    needs_update=True,
)
def _wrong_update_sign(view: View) -> Finding | None:
    found: list[Evidence] = []
    align = [view.usual(view.param(p.name, m.P_ALIGN)) for p in view.weights]
    align = [a for a in align if math.isfinite(a)]
    if align and float(np.median(align)) < -0.5:
        text = f"the updates point along the gradient (cosine with its negative {np.median(align):.2f})"
        found.append(evidence(text, 7.0))
    fact = view.loss
    climbing = [g for o in view.facts.optimizers for g in o.groups if g.get("maximize") is True]
    if climbing and fact is not None and fact.kind in ERRORS:
        found.append(
            evidence(
                f"the optimizer has maximize=True, and the loss is an error ({fact.kind})", 7.0
            )
        )
    if fact is not None and view.path.last < 0 and _negated(fact):
        found.append(evidence("the loss is the negative of an error and falls below zero", 7.0))
    # Of two sides that train against each other one may be meant to make errors larger.
    elif fact is not None and fact.maximised and len(view.facts.losses) == 1:
        text = "the loss falls where the error in it grows, as a ratio of signal to noise would"
        found.append(evidence(text, 6.0, where="loss", step=0))
    found += list(_rewarded(view.facts.losses))
    if not found and _plunges(view):
        text = f"the loss falls below zero without bound, to {view.path.last:.3g}"
        found.append(evidence(text, 5.0))
    return Finding(tuple(found), first_step=0) if found else None


def _rewarded(losses: tuple[LossFact, ...]) -> Iterator[Evidence]:
    """Objectives that reinforcement learning maximises, and that are minimised here."""
    for part in (p for fact in losses for p in fact.parts if p.kind == "policy"):
        lean = part.lean or 0.0
        if (part.factor or 0.0) > 0 and lean > COSTS:
            told = "all of them positive" if lean > REWARDS else "without a minus sign"
            text = (
                f"the loss adds up log-probabilities of what was chosen times weights, {told}: "
                "what brings reward becomes less likely"
            )
            yield evidence(text, 6.0 if lean > REWARDS else 5.0, where="loss", step=0)
    critics = [x for x in losses if x.kind in REGRESSION and x.last_op in LINEAR]
    for actor in losses:
        if critics and _is_bare_mean(actor) and actor not in critics:
            text = (
                "one optimizer minimises the mean of a network's output, which another optimizer "
                "fits to targets: an actor that is led to what its critic values least"
            )
            yield evidence(text, _valued(critics[0]), where="loss", step=0)


def _is_bare_mean(fact: LossFact) -> bool:
    """Whether a loss is the mean of what a linear layer gives, with a plus sign."""
    plus = len(fact.parts) == 1 and (fact.parts[0].factor or 0.0) > 0
    names = [op for op in fact.ops if op not in ("Squeeze", "View")][:2]
    return plus and names[:1] == ["Mean"] and names[1:] in [[x] for x in LINEAR]


def _valued(critic: LossFact) -> float:
    """How surely a critic's values are rewards: costs are seldom below zero."""
    mean = None if critic.target is None else critic.target.mean
    return 6.0 if mean is not None and mean < 0 else 4.5


LINEAR = ("Addmm", "Mm")
# Mean over mean absolute weight of the log-probabilities. Below the first they are costs with
# their sign turned; above the second none, or next to none, is below zero.
COSTS, REWARDS = -0.5, 0.95
# Kinds of loss that are zero at best: to make one larger is never meant.
ERRORS = REGRESSION | BINARY | {"cross_entropy", "nll"}
# A loss this many times its first size below zero: densities and bounds end far earlier.
PLUNGE = 300.0


def _negated(fact: LossFact) -> bool:
    """Whether a loss below zero is an error with the wrong sign.

    A binary cross-entropy is below zero for targets outside of 0 to 1 as well, and `nll_loss` for
    anything but log-probabilities.
    """
    if len(fact.parts) > 1:
        # One of several terms may be negative by its nature: an entropy, a policy's objective.
        return any(p.kind in ERRORS and (p.factor or 0.0) < 0 for p in fact.parts)
    turned = "Neg" in fact.ops[:2] or any((p.factor or 0.0) < 0 for p in fact.parts[:1])
    return fact.kind in ERRORS and (turned or not fact.kind.startswith(("bce", "nll")))


def _plunges(view: View) -> bool:
    """Whether the loss falls below zero without bound: ever faster, or out of all proportion."""
    values = view.path.series.finite().values
    if len(values) < 20 or not view.path.last < -PLUNGE * max(abs(view.path.first), 1e-3):
        return False
    if view.path.last < -(PLUNGE**2) * max(abs(view.path.first), 1e-3):
        return True
    middle = float(np.median(values[len(values) // 2 - 2 : len(values) // 2 + 3]))
    return view.path.last - middle < 2 * (middle - view.path.first)
