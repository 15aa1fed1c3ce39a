"""Faults of the learning rate: too high, too low, mistimed."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.initialisation import untrained
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Floats
from neuraldbg.core.view import View

# Update-to-weight ratios: 1e-3 is the usual advice for a whole run; with Adam at sound
# rates the benchmark's healthy runs start at 5e-3 to 1e-1 and settle below.
FAR_TOO_LARGE, TOO_LARGE, LARGE, SOUND = 1.0, 0.3, 0.12, 0.03


TOO_SMALL = 3e-5


# Rates that are usual for a kind of optimizer (defaults and textbook ranges).
USUAL_ADAPTIVE = (5e-5, 1e-2)


USUAL_PLAIN = (1e-3, 0.5)
# Adagrad divides by a sum that grows, Adadelta and Rprop by a step of their own: their defaults
# are 0.01, 1 and 0.01, and tenfold rates are in use.
USUAL_OF = {"Adagrad": (1e-3, 0.5), "Adadelta": (1e-2, 2.0), "Rprop": (1e-3, 0.1)}


# Peak of the loss over its first value, soon after the start.
JUMP = 1.5
# Change from one loss to the next, of its size, below which it has come to rest.
STEADY = 0.01
# Of a loss that falls at an even pace a third falls in the last third; of one that settles, little.
EVEN_PACE = 0.2
SLOW_RATIO = 2e-3
# Share of a weight that all updates of a run together may reach, below which nothing has moved.
STANDS_STILL = 0.02
# The same for untrained weights at an unusually low rate: of 260 runs of scripts that are sound
# and start from the library's own weights, one with an optimizer that adapts stays below, and its
# groups have rates of their own.
HARDLY_MOVES = 0.06


@cause(
    "lr_too_high",
    "The learning rate is beyond the stable range.",
    explains="diverged nonfinite not_learning huge_updates dead exploding vanishing zero_gradient",
    chain=(
        "each update changes the weights by a large share of themselves",
        "the loss overshoots its minimum instead of descending",
        "units die or saturate, or the loss diverges",
    ),
    repair="Lower the learning rate tenfold (and again, until the loss falls from the start).",
    experiment="scale every lr by 0.1, by 0.01",
    rivals={
        "missing_zero_grad": "there gradients are left over when backward begins",
        "init_too_large": "there the first loss is far too high before any update",
    },
    references=("Goodfellow et al., Deep Learning, 8.3", "Cohen et al., Edge of stability, 2021"),
    yields_to="unnormalized_input unscaled_targets init_too_large loss_reduction_scale "
    "missing_zero_grad nonfinite_input nonfinite_operation half_precision_underflow "
    "half_precision_overflow excessive_momentum unstable_attention "
    "exploding_recurrence bad_bias_init outlier_batch wrong_update_sign "
    "unshuffled_data lr_schedule optimizer_misconfigured distribution_shift",
    needs_update=True,
)
def _lr_too_high(view: View) -> Finding | None:
    lr = _rate(view)
    if not view.ratios or lr is None:
        return None
    name, ratio = max(view.ratios.items(), key=lambda item: item[1])
    typical = view.pace
    found = [_ratio_evidence(name, ratio, typical), view.fails(2.0, 5.0)]
    found += _rate_evidence(view, lr) + _jump_evidence(view) + _bulk_death(view) + _steady(view)
    summary = f"{_named(lr)} is too high: early updates changed {name} by {ratio:.2g} of its size each step."
    repair = (
        f"Lower the learning rate{_from_to(lr, 0.1)}, and again if the loss still does not fall."
    )
    return Finding(tuple(found), (name,), 0, summary, repair)


def _rate(view: View) -> float | None:
    """The highest rate of the run; NaN where the script updates by hand, None if unknown."""
    if not len(view.lr):
        return None if view.facts.optimizers else math.nan
    return float(view.lr.finite().values.max(initial=0.0))


def _named(lr: float) -> str:
    if math.isfinite(lr):
        return f"The learning rate {lr:.3g}"
    return "The step that the script takes by hand"


def _from_to(lr: float, factor: float) -> str:
    return f" from {lr:.3g} to about {lr * factor:.1g}" if math.isfinite(lr) else f" by {factor:g}"


def _usual(view: View) -> tuple[float, float]:
    """The range of rates that is usual for the first optimizer."""
    kind = view.facts.optimizers[0].kind if view.facts.optimizers else ""
    return USUAL_OF.get(kind, USUAL_ADAPTIVE if view.adaptive else USUAL_PLAIN)


def _ratio_evidence(name: str, ratio: float, typical: float) -> Evidence:
    text = f"early updates are {ratio:.2g} of the weight at {name} (median over weights {typical:.2g}; about 1e-3 to 1e-2 is usual)"
    for bound, weight in ((FAR_TOO_LARGE, 4.0), (TOO_LARGE, 3.0), (LARGE, 1.5), (SOUND, 0.0)):
        if typical > bound:
            return evidence(text, weight, where=name, ratio=ratio)
    # One layer alone far above the others counts half.
    return evidence(text, 1.0 if ratio > TOO_LARGE else -1.5, where=name, ratio=ratio)


def _rate_evidence(view: View, lr: float) -> list[Evidence]:
    low, high = _usual(view)
    kind = view.facts.optimizers[0].kind if view.facts.optimizers else "optimizer"
    if lr > high:
        weight = min(1.0 + math.log10(lr / high), 2.5)
        return [
            evidence(
                f"lr {lr:.3g} is above the usual range of {kind} ({low:g} to {high:g})",
                weight,
                lr=lr,
            )
        ]
    if low <= lr <= high / 3:
        return [evidence(f"lr {lr:.3g} is usual for {kind} ({low:g} to {high:g})", -1.0, lr=lr)]
    return []


def _jump_evidence(view: View) -> list[Evidence]:
    path = view.path
    values = path.series.values
    if len(values) < 3 or not math.isfinite(values[0]):
        return []
    early = values[1 : max(len(values) // 4, 4)]
    if not np.isfinite(early).all():
        return [
            evidence(
                "the loss is finite at first and not after a few updates",
                1.0,
                step=path.nonfinite_step,
            )
        ]
    top = float(early.max())
    if top > JUMP * values[0] > 0:
        at = int(path.series.steps[1 + int(early.argmax())])
        text = f"the loss jumped from {values[0]:.3g} to {top:.3g} at step {at}, after updates at this rate"
        return [evidence(text, 1.5, step=at)]
    return []


def _bulk_death(view: View) -> list[Evidence]:
    dead = [
        e
        for e in view.events
        if e.kind == EventType.ACTIVATION
        and e.after in ("dead", "collapsed")
        and e.before == "healthy"
    ]
    if not dead:
        return []
    return [
        evidence(
            f"{dead[0].where} was healthy and died at step {dead[0].step}",
            1.0,
            where=dead[0].where,
            step=dead[0].step,
        )
    ]


def _steady(view: View) -> list[Evidence]:
    """A loss that has come to rest, with every unit alive, does not overshoot."""
    values = view.path.series.finite().values
    ill = any(e.after in ("dead", "collapsed", "saturated", "vanishing") for e in view.events)
    if len(values) < 40 or ill or view.trouble.kind in ("nonfinite", "diverged"):
        return []
    half = values[len(values) // 2 :]
    swing = float(np.median(np.abs(np.diff(half)))) / max(abs(float(np.median(half))), 1e-12)
    if swing >= STEADY:
        return []
    return [evidence(f"the loss changes by {swing:.1%} from step to step in the second half", -2.0)]


@cause(
    "lr_too_low",
    "The learning rate is so small that nothing moves within the run.",
    explains="not_learning tiny_updates",
    chain=(
        "gradients are healthy",
        "each update is a vanishing share of the weight",
        "the loss hardly falls",
    ),
    repair="Raise the learning rate tenfold (and again, until the loss falls clearly).",
    experiment="scale every lr by 10, by 100",
    rivals={"lr_schedule": "there the rate starts sound and collapses"},
    yields_to="lr_schedule excessive_clipping clip_before_unscale wrong_loss "
    "output_activation_mismatch saturating_activation depth_without_normalization "
    "loss_reduction_scale optimizer_misconfigured low_precision_update "
    "bad_bias_init init_too_small params_not_optimized broken_graph",
    needs_update=True,
)
def _lr_too_low(view: View) -> Finding | None:
    lr = _rate(view)
    if not view.ratios or lr is None:
        return None
    if lr <= 0:
        return _rate_of_zero(view)
    typical = view.pace
    low, _ = _usual(view)
    pace = _pace(view)
    if typical > (SLOW_RATIO if pace > EVEN_PACE else 10 * TOO_SMALL):
        return None
    weight = float(np.clip(1.0 + 1.5 * math.log10(TOO_SMALL / max(typical, 1e-12)), -1.0, 3.5))
    found = [
        evidence(
            f"early updates are {typical:.2g} of the weights (about 1e-3 is usual)",
            weight,
            ratio=typical,
        ),
    ]
    reach = typical * view.facts.run.steps
    root = rooted(view) if lr < low else None
    found.append(view.fails(2.0, 5.0 if root is None else 1.0))
    if root is not None:
        found.append(root)
    elif reach < STANDS_STILL and view.trouble.level > 0 and not lr >= low:
        text = f"{view.facts.run.steps} such updates together move a weight by {reach:.1g} of itself at most"
        found.append(evidence(text, 2.5, reach=reach))
    if pace > EVEN_PACE:
        text = f"the loss still falls at an even pace: {pace:.0%} of the fall is in the last third"
        found.append(evidence(text, 3.0))
    if lr < low:
        found.append(
            evidence(
                f"lr {lr:.3g} is below the usual range ({low:g} and more)",
                min(1.0 + math.log10(low / lr), 3.0),
            )
        )
    elif not pace > EVEN_PACE and math.isfinite(lr):  # a loss that never falls has no pace
        found.append(evidence(f"lr {lr:.3g} itself is usual, so the gradients must be small", -2.5))
    summary = f"{_named(lr)} is too low: updates are {typical:.1g} of the weights."
    repair = f"Raise the learning rate{_from_to(lr, 10)}, and again if the loss still hardly falls."
    return Finding(tuple(found), (), 0, summary, repair)


def rooted(view: View) -> Evidence | None:
    """Untrained weights that all updates of the run together cannot move.

    The loss may fall all the same: by what a bias gains, or a few weights of the head.
    """
    reach = view.pace * view.facts.run.steps
    rates = {
        s.finite().values.max(initial=0.0) for _, s in view.record.each(Kind.OPTIMIZER, m.O_LR)
    }
    if not reach < HARDLY_MOVES or not untrained(view.weights) or len(rates) > 1:
        return None  # with rates of their own, some move and others are not meant to
    text = (
        f"{view.facts.run.steps} updates together move a weight by {reach:.1g} of itself at most, "
        "and the weights start as a layer's do: untrained"
    )
    return evidence(text, 3.0, reach=reach)


def _rate_of_zero(view: View) -> Finding:
    text = f"the learning rate is 0 at all {len(view.lr)} steps"
    found = (evidence(text, 7.0, step=0), view.fails(1.0, 0.0))
    return Finding(found, (), 0, f"{text[0].upper()}{text[1:]}.", "Set a learning rate above 0.")


def _pace(view: View) -> float:
    """The share of the whole fall of the loss that is in its last third; NaN if it is no fall."""
    values = view.path.series.finite().values
    third = len(values) // 3
    if third < 10 or view.learnt > 0.5:
        return math.nan
    edge = max(third // 3, 3)
    start, end = float(np.median(values[:edge])), float(np.median(values[-edge:]))
    late = float(np.median(values[2 * third - edge // 2 : 2 * third + edge // 2 + 1]))
    noise = view.path.noise / math.sqrt(edge)
    return (late - end) / (start - end) if start - end > 4 * noise > 0 else math.nan


@cause(
    "lr_schedule",
    "The schedule kills, raises or mistimes the learning rate.",
    explains="not_learning frozen tiny_updates diverged nonfinite huge_updates spiking",
    chain=(
        "the scheduler changes the rate at the wrong time or too often",
        "the rate is gone before the model has learnt",
        "the loss stops falling",
    ),
    repair="Step the scheduler at the granularity it was built for (per optimizer step or per epoch), and check its length.",
    experiment="hold lr at its initial or peak value; add a warm-up",
    rivals={"lr_too_low": "there the rate is too low from the start"},
    needs_update=True,
)
def _lr_schedule(view: View) -> Finding | None:
    lr = view.lr.finite()
    if len(lr) < 10 or lr.values.max() <= 0 or np.ptp(lr.values) == 0:
        return None
    peak = float(lr.values.max())
    gone = lr.values < 0.01 * peak
    after = gone & (np.arange(len(lr)) > int(lr.values.argmax()))
    share = float(after.mean())
    found = []
    step = None
    if share >= 0.2:
        step = int(lr.steps[int(np.argmax(after))])
        text = f"the rate fell from {peak:.3g} to under 1 % of it by step {step}: {share:.0%} of the run had no rate left"
        found.append(evidence(text, 3.0 + 3.0 * share, step=step, share=share))
    warming = _never_arrives(view, lr.values)
    step = 0 if warming and step is None else step
    found += _mistimed(view, len(lr)) + warming
    broke = view.path.nonfinite_step if view.trouble.kind == "nonfinite" else None
    until = lr.values if broke is None else lr.values[lr.steps <= broke]
    grown = float(until[-1] / max(until[0], 1e-30)) if len(until) else 1.0
    if grown > 10 and view.breaks:
        found.append(evidence(f"the rate rose {grown:.3g}-fold and the loss diverged", 6.0))
    if not found:
        return None
    found.append(view.fails(1.0, 1.0))
    return Finding(
        tuple(found),
        (),
        step,
        f"The learning rate schedule leaves {lr.values[-1]:.2g} of {peak:.2g} at the end.",
    )


# Share of the rate it was made with that an optimizer has reached by the end of a run.
ARRIVED = 0.2


def _never_arrives(view: View, rates: Floats) -> list[Evidence]:
    """A warm-up that is still under way when the run ends, far below the optimizer's own rate."""
    meant, last = view.setting("initial_lr"), float(rates[-1])
    if not last < ARRIVED * meant or last < rates.max() or not last > rates[0]:
        return []
    text = (
        f"the rate was still rising when the run ended: it had reached {last:.2g} of the "
        f"{meant:g} that the optimizer was made with"
    )
    return [evidence(text, 4.5, step=0)]


def _mistimed(view: View, steps: int) -> list[Evidence]:
    for _, series in view.record.each(Kind.OPTIMIZER, m.O_SCHEDULED):
        taken = float(series.values[-1])
        if taken > 1.5 * steps:
            text = f"the scheduler took {taken:.0f} steps in {steps} optimizer steps"
            return [evidence(text, 2.5)]
    return []
