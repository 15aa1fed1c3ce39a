"""Faults of the targets: scale, noise, balance."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import BINARY, REGRESSION, Kind
from neuraldbg.core.view import View

MAJORITY = 0.9
# A sound classifier may take as many steps before its loss leaves the entropy of the labels.
LONG_ENOUGH = 100
# Softened labels keep a yes above 0.5; a mask of 0 and 1 divided by 255 ends at 0.004.
FAINT = 0.05
# Nothing to learn leaves the loss at its level, up to what can be memorised.
STUCK = 0.6
# Random labels leave the loss at a constant guess, or near it while some are memorised.
BEYOND = 1.5
# One term over another at a constant guess: what is left of the first hides all of the second.
DROWNED = 1e4
# A squared error is at least the variance, a Huber loss half of it; twice that for good measure.
APART = 4.0
LATEST = 5  # looks


@cause(
    "unscaled_targets",
    "Regression targets have a scale far from the output's.",
    explains="not_learning initial_loss huge_updates diverged exploding",
    chain=(
        "targets are orders of magnitude larger than what the model gives at first",
        "the loss and its gradient are huge, or the bias needs the whole run to get there",
    ),
    repair="Standardise the targets (and undo it on the predictions).",
    experiment="standardise the target",
    yields_to="nonfinite_input",
)
def _unscaled_targets(view: View) -> Finding | None:
    return _unequal_scales(view) or _one_scale(view)


def _unequal_scales(view: View) -> Finding | None:
    """Errors in different units, added up as they are: the largest decides, the others are noise."""
    fact = view.loss
    terms = [(p.spread, p.factor) for p in (fact.parts if fact is not None else ())]
    felt = [abs(f) * s * s for s, f in terms if s is not None and s > 0 and f is not None]
    if len(felt) < 2 or min(felt) <= 0 or max(felt) < DROWNED * min(felt):
        return None
    spreads = [s for s, _ in terms if s is not None and s > 0]
    text = (
        f"errors of targets that vary by {max(spreads):.3g} and by {min(spreads):.3g} are added up: "
        f"at a constant guess one counts {max(felt) / min(felt):.1g} times as much as the other"
    )
    found = (evidence(text, 5.5, where="target", step=0), view.fails(1.0, 1.0))
    told = f"The targets of the loss's terms vary by {max(spreads):.3g} and by {min(spreads):.3g}."
    return Finding(found, (), 0, told)


def _one_scale(view: View) -> Finding | None:
    if view.loss is None or view.loss.kind not in {*REGRESSION, "custom"}:
        return None
    scale = view.target_scale
    if not scale > 20:
        return None
    found = [
        evidence(
            f"the targets have a scale of {scale:.3g}",
            min(1.8 + 1.5 * math.log10(scale / 20), 4.5),
            where="target",
            step=0,
        ),
        view.fails(2.5, 3.5),
    ]
    return Finding(tuple(found), (), 0, f"The targets have a scale of {scale:.3g}.")


@cause(
    "label_noise",
    "The labels are random, shifted or misaligned.",
    explains="not_learning",
    chain=(
        "labels have nothing to do with the inputs",
        "gradients of different batches do not agree",
        "the loss stays at the entropy of the labels",
    ),
    repair="Check that sample k and label k belong together (sort both sides the same way).",
    rivals={"lr_too_low": "there the updates are tiny"},
    yields_to="broken_graph params_not_optimized missing_nonlinearity excessive_dropout "
    "insufficient_capacity loss_shape_broadcast output_activation_mismatch "
    "wrong_loss unshuffled_data frozen_params init_symmetric eval_mode_training "
    "loss_reduction_scale lr_too_high lr_too_low lr_schedule excessive_weight_decay "
    "excessive_momentum degenerate_input missing_zero_grad clip_before_unscale "
    "excessive_clipping unstable_attention batchnorm_small_batch bad_bias_init",
)
def _label_noise(view: View) -> Finding | None:
    if view.trouble.kind != "not_learning" or not view.ratios or view.loss is None:
        return None
    typical = view.pace
    cosines = [view.usual(view.param(p.name, m.P_COSINE)) for p in view.weights]
    cosines = [c for c in cosines if math.isfinite(c)]
    if not cosines or not 3e-4 < typical < 0.1 or view.path.gain is None:
        return None
    if len(view.facts.losses) > 1:
        return None  # a critic that cannot tell real from made has been beaten, as it should be
    agree = float(np.median(cosines))
    found = [
        view.fails(2.5, 5.0),
        evidence("something is being learnt", -2.0 if view.trouble.level < STUCK else 0.0),
        evidence(f"updates are sound ({typical:.2g} of the weights)", 0.7),
        evidence(
            f"gradients of successive batches hardly agree (cosine {agree:.2f})",
            1.8 if abs(agree) < 0.15 else -1.5,
        ),
    ]
    if view.facts.run.steps < LONG_ENOUGH:
        found.append(evidence(f"{view.facts.run.steps} steps are few to learn from", -2.0))
    dead = any(
        e.after in ("vanishing", "dead", "zero", "collapsed", "saturated", "absent")
        for e in view.events
    )
    found.append(
        evidence(
            "no layer is dead, saturated or cut off" if not dead else "some layers are unhealthy",
            0.8 if not dead else -2.0,
        )
    )
    if view.path.chance is not None and view.path.last > BEYOND * view.path.chance:
        text = f"the loss ends {view.path.last / view.path.chance:.2g} times above a constant guess, where labels of any kind would bring it down"
        found.append(evidence(text, -4.0))
    first = view.path.series.values[0]
    near = view.path.chance is not None and abs(first / view.path.chance - 1) < 0.3
    found.append(
        evidence("the loss starts and stays at the entropy of the labels", 1.0 if near else -1.0)
    )
    return Finding(tuple(found), (), 0, "The labels seem unrelated to the inputs.")


NOTHING_LEFT = 0.999  # share of a loss that is gone


@cause(
    "degenerate_targets",
    "The targets are constant, or nearly so.",
    chain=(
        "all targets are the same",
        "a constant prediction is perfect",
        "the loss drops at once and the model is useless",
    ),
    repair="Check the targets: a wrong dtype or a wrong column makes them constant.",
)
def _degenerate_targets(view: View) -> Finding | None:
    # Of several losses in turn (as in a GAN) or in a sum, one target says nothing of the rest.
    # A sum of which nothing is left has no other term to which its known target says nothing.
    asked = view.loss is not None and view.loss.kind in BINARY
    gone = asked and view.path.fall > NOTHING_LEFT
    sums = view.loss is not None and len(view.loss.parts) > 1 and not gone
    if len(view.facts.losses) > 1 or sums or _tells_apart(view):
        return None
    faint = _faint(view)
    if faint is not None:
        return faint
    std = view.batch("target", m.B_STD).finite()
    distinct = view.batch("target", m.B_DISTINCT).finite()
    low, high = view.batch("target", m.B_LOW).finite(), view.batch("target", m.B_HIGH).finite()
    if len(std) < 3 or not len(low) or not len(high):
        return None
    scale = max(float(np.abs(high.values).max()), float(np.abs(low.values).max()), 1e-12)
    if float(std.values.max()) <= 1e-6 * scale and float(np.ptp(low.values)) <= 1e-6 * scale:
        found = [
            evidence(
                f"every target of {len(std)} batches is {low.values[0]:.3g}",
                8.0,
                where="target",
                step=0,
            )
        ]
        return Finding(tuple(found), ("target",), 0, f"All targets are {low.values[0]:.3g}.")
    if (
        len(distinct)
        and float(distinct.values.max()) == 1
        and len(distinct) > 5
        and float(np.ptp(low.values)) == 0
    ):
        return Finding(
            (evidence("every batch has one and the same label", 6.0, where="target"),),
            ("target",),
            0,
        )
    return None


def _faint(view: View) -> Finding | None:
    """Targets of yes-or-no questions of which none comes near a yes."""
    high = view.batch("target", m.B_HIGH).finite()
    asked = view.loss is not None and view.loss.kind in BINARY
    top = float(high.values.max(initial=0.0))
    if not asked or len(high) < 3 or not 0 < top < FAINT:
        return None
    text = f"no target of {len(high)} batches is above {top:.2g}: a yes is 1, so all are a no"
    seen = evidence(text, 7.0, where="target", step=int(high.steps[0]))
    told = f"The targets reach {top:.2g} at most, where a yes is 1."
    repair = (
        "Find where the targets are scaled down: masks of 0 and 1 are divided by 255 once more."
    )
    return Finding((seen,), ("target",), int(high.steps[0]), told, repair)


def _tells_apart(view: View) -> bool:
    """Whether the model's outputs differ by more than so small a loss allows.

    No error against a constant is smaller than the spread of what is compared with it. Where
    it is, something made of the output is (a residual, say), and zero is what it should be.
    """
    if view.loss is None or view.loss.kind not in REGRESSION:
        return False
    spread = view.record.series(Kind.LOSS, "prediction", m.L_PRED_SAMPLE_STD).finite()
    # The losses of the same steps: the last looks may lie far before the end.
    loss = view.path.series.on(spread.steps[-LATEST:])
    if not len(loss) or not np.isfinite(loss).all():
        return False
    last, error = float(np.median(spread.values[-LATEST:])), float(np.median(loss))
    return last > APART * error and last * last > APART * error


@cause(
    "class_imbalance",
    "One class dominates.",
    explains="not_learning",
    chain=(
        "most samples are of one class",
        "predicting it always is nearly right",
        "the others are never learnt",
    ),
    repair="Weight the classes (or sample them evenly).",
    experiment="class weights",
    yields_to="unshuffled_data degenerate_targets excessive_dropout",
)
def _class_imbalance(view: View) -> Finding | None:
    majority = view.batch("target", m.B_MAJORITY).median()
    distinct = float(view.batch("target", m.B_DISTINCT).finite().values.max(initial=0.0))
    yes = _yes(view)
    if yes is not None and not math.isfinite(majority):
        majority, distinct = max(yes, 1 - yes), 2.0
    # A batch may miss the rare class altogether: the fullest batch tells how many there are.
    # Weights in the loss are the remedy: the imbalance no longer decides what is learnt.
    if view.loss is not None and view.loss.weighted:
        return None
    if not majority > MAJORITY or not 2 <= distinct <= 100:
        return None
    share = min(2.5 + 20.0 * (majority - MAJORITY), 4.5)
    found = [
        evidence(f"{majority:.0%} of the labels of a batch are one class", share, where="target"),
        _learnt_little(view),
        *_never_said(view, yes),
    ]
    return Finding(tuple(found), ("target",), 0, f"One class holds {majority:.0%} of the labels.")


def _yes(view: View) -> float | None:
    """The share of ones among binary targets of any shape, such as masks; None for others."""
    fact = view.loss
    asked = fact.target if fact is not None and fact.kind.startswith("bce") else None
    if (
        asked is None
        or not asked.integral
        or asked.distinct != 2
        or (asked.low, asked.high) != (0, 1)
    ):
        return None
    mean = view.batch("target", m.B_MEAN).median()
    return mean if 0 < mean < 1 else None


def _never_said(view: View, yes: float | None) -> list[Evidence]:
    """Whether the model says the rare answer to any sample of the last batch looked at."""
    fact = view.loss
    said = fact.prediction if fact is not None else None
    if fact is None or yes is None or said is None or said.low is None or said.high is None:
        return []
    middle = 0.0 if fact.kind == "bce_with_logits" else 0.5
    if (said.high if yes < 0.5 else 2 * middle - said.low) <= middle:
        return [evidence("not one prediction of the batch is on the side of the rare class", 1.5)]
    return [evidence("the rare class is predicted where it belongs, too", -2.0)]


def _learnt_little(view: View) -> Evidence:
    """How much better than always guessing the frequent class the model became."""
    gain = view.path.gain
    if gain is None:
        return view.fails(1.5, 1.0)
    text = f"{gain:.0%} of what the class frequencies leave open was learnt"
    return evidence(text, 1.5 if gain < 0.3 else -1.0 if gain < 0.6 else -4.5)
