"""Faults of the step: learning rate, schedule, decay, momentum, clipping, epsilon."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Kind
from neuraldbg.core.view import View

# Update-to-weight ratios: 1e-3 is the usual advice for a whole run; with Adam at sound
# rates the benchmark's healthy runs start at 5e-3 to 1e-1 and settle below.
FAR_TOO_LARGE, TOO_LARGE, LARGE, SOUND = 1.0, 0.3, 0.12, 0.03
TOO_SMALL = 3e-5
# Rates that are usual for a kind of optimizer (defaults and textbook ranges).
USUAL_ADAPTIVE = (5e-5, 1e-2)
USUAL_PLAIN = (1e-3, 0.5)
# Peak of the loss over its first value, soon after the start.
JUMP = 1.5


@cause(
    "lr_too_high",
    "The learning rate is beyond the stable range.",
    explains="diverged nonfinite not_learning oscillating huge_updates dead exploding vanishing",
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
)
def lr_too_high(view: View) -> Finding | None:
    if not view.ratios or not len(view.lr):
        return None
    lr = float(view.lr.finite().values.max(initial=0.0))
    name, ratio = max(view.ratios.items(), key=lambda item: item[1])
    typical = float(np.median(list(view.ratios.values())))
    found = [_ratio_evidence(name, ratio, typical), view.fails(2.0, 5.0)]
    found += _rate_evidence(view, lr) + _jump_evidence(view) + _bulk_death(view)
    summary = f"The learning rate {lr:.3g} is too high: early updates changed {name} by {ratio:.2g} of its size each step."
    repair = f"Lower the learning rate from {lr:.3g} to about {lr / 10:.1g}, and again if the loss still does not fall."
    return Finding(tuple(found), (name,), 0, summary, repair)


def _ratio_evidence(name: str, ratio: float, typical: float) -> Evidence:
    text = f"early updates are {ratio:.2g} of the weight at {name} (median over weights {typical:.2g}; about 1e-3 to 1e-2 is usual)"
    for bound, weight in ((FAR_TOO_LARGE, 4.0), (TOO_LARGE, 3.0), (LARGE, 1.5), (SOUND, 0.0)):
        if typical > bound:
            return evidence(text, weight, where=name, ratio=ratio)
    # One layer alone far above the others counts half.
    return evidence(text, 1.0 if ratio > TOO_LARGE else -1.5, where=name, ratio=ratio)


def _rate_evidence(view: View, lr: float) -> list[Evidence]:
    low, high = USUAL_ADAPTIVE if view.adaptive else USUAL_PLAIN
    kind = view.facts.optimizers[0].kind if view.facts.optimizers else "optimizer"
    if lr > high:
        weight = min(1.0 + math.log10(lr / high), 2.5)
        return [evidence(f"lr {lr:.3g} is above the usual range of {kind} ({low:g} to {high:g})", weight, lr=lr)]
    return []


def _jump_evidence(view: View) -> list[Evidence]:
    path = view.path
    values = path.series.values
    if len(values) < 3 or not math.isfinite(values[0]):
        return []
    early = values[1 : max(len(values) // 4, 4)]
    if not np.isfinite(early).all():
        return [evidence("the loss is finite at first and not after a few updates", 1.0, step=path.nonfinite_step)]
    top = float(early.max())
    if top > JUMP * values[0] > 0:
        at = int(path.series.steps[1 + int(early.argmax())])
        text = f"the loss jumped from {values[0]:.3g} to {top:.3g} at step {at}, after updates at this rate"
        return [evidence(text, 1.5, step=at)]
    return []


def _bulk_death(view: View) -> list[Evidence]:
    dead = [e for e in view.events if e.kind == EventType.ACTIVATION and e.after in ("dead", "collapsed") and e.before == "healthy"]
    if not dead:
        return []
    return [evidence(f"{dead[0].where} was healthy and died at step {dead[0].step}", 1.0, where=dead[0].where, step=dead[0].step)]


@cause(
    "lr_too_low",
    "The learning rate is so small that nothing moves within the run.",
    explains="not_learning tiny_updates slow",
    chain=("gradients are healthy", "each update is a vanishing share of the weight", "the loss hardly falls"),
    repair="Raise the learning rate tenfold (and again, until the loss falls clearly).",
    experiment="scale every lr by 10, by 100",
    rivals={"lr_schedule": "there the rate starts sound and collapses"},
)
def lr_too_low(view: View) -> Finding | None:
    if not view.ratios or not len(view.lr):
        return None
    lr = float(view.lr.finite().values.max(initial=0.0))
    typical = float(np.median(list(view.ratios.values())))
    low, _ = USUAL_ADAPTIVE if view.adaptive else USUAL_PLAIN
    if lr <= 0 or typical > 10 * TOO_SMALL:
        return None
    weight = float(np.clip(1.0 + 1.5 * math.log10(TOO_SMALL / max(typical, 1e-12)), -1.0, 3.5))
    found = [
        evidence(f"early updates are {typical:.2g} of the weights (about 1e-3 is usual)", weight, ratio=typical),
        view.fails(2.0, 5.0),
    ]
    if lr < low:
        found.append(evidence(f"lr {lr:.3g} is below the usual range ({low:g} and more)", min(1.0 + math.log10(low / lr), 3.0)))
    else:
        found.append(evidence(f"lr {lr:.3g} itself is usual, so the gradients must be small", -2.5))
    summary = f"The learning rate {lr:.3g} is too low: updates are {typical:.1g} of the weights."
    repair = f"Raise the learning rate from {lr:.3g} to about {lr * 10:.1g}, and again if the loss still hardly falls."
    return Finding(tuple(found), (), 0, summary, repair)


@cause(
    "lr_schedule",
    "The schedule kills, raises or mistimes the learning rate.",
    explains="plateau not_learning frozen tiny_updates diverged",
    chain=("the scheduler changes the rate at the wrong time or too often", "the rate is gone before the model has learnt", "the loss stops falling"),
    repair="Step the scheduler at the granularity it was built for (per optimizer step or per epoch), and check its length.",
    experiment="hold lr at its initial or peak value; add a warm-up",
    rivals={"lr_too_low": "there the rate is too low from the start"},
)
def lr_schedule(view: View) -> Finding | None:
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
    found += _mistimed(view, len(lr))
    grown = float(lr.values[-1] / max(lr.values[0], 1e-30))
    if grown > 10 and view.trouble.kind in ("diverged", "nonfinite"):
        found.append(evidence(f"the rate rose {grown:.3g}-fold and the loss diverged", 4.0))
    if not found:
        return None
    found.append(view.fails(1.0, 1.0))
    return Finding(tuple(found), (), step, f"The learning rate schedule leaves {lr.values[-1]:.2g} of {peak:.2g} at the end.")


def _mistimed(view: View, steps: int) -> list[Evidence]:
    for _, series in view.record.each(Kind.OPTIMIZER, m.O_SCHEDULED):
        taken = float(series.values[-1])
        if taken > 1.5 * steps:
            text = f"the scheduler took {taken:.0f} steps in {steps} optimizer steps"
            return [evidence(text, 2.5)]
    return []


@cause(
    "excessive_weight_decay",
    "Weight decay outweighs the gradient.",
    explains="not_learning plateau",
    chain=("decay pulls the weights to zero faster than the gradient builds them", "the output collapses to a constant"),
    repair="Lower weight_decay (1e-4 to 1e-2 is usual).",
    experiment="weight decay 0",
)
def excessive_weight_decay(view: View) -> Finding | None:
    decay = view.setting("weight_decay", 0.0)
    if not decay > 0 or not view.weights:
        return None
    kind = view.facts.optimizers[0].kind
    per_step = decay * view.setting("lr", 0.0) if kind in ("SGD", "AdamW") else decay
    strong = 0.05 if kind == "SGD" else 0.5 if kind == "AdamW" else 0.03
    shrunk = [_shrink(view, p.name) for p in view.weights]
    shrunk = [x for x in shrunk if math.isfinite(x)]
    pull = [decay * view.usual(view.param(p.name, m.P_WEIGHT)) / max(view.usual(view.param(p.name, m.P_GRAD)), 1e-30) for p in view.weights]
    pull = [x for x in pull if math.isfinite(x)]
    if not shrunk or not pull:
        return None
    left, ratio = float(np.median(shrunk)), float(np.median(pull))
    size = float(np.clip(2.5 * math.log10(decay / strong), -4.0, 3.5))
    found = [evidence(f"weight_decay {decay:g} with {kind} (lr times decay {per_step:.2g})", size)]
    if left < 0.7:
        found.append(evidence(f"the weights shrank to {left:.2g} of their start", 2.5 if left < 0.4 else 1.5))
    else:
        found.append(evidence(f"the weights kept {left:.2g} of their size", -2.0))
    if kind != "AdamW" and ratio > 0.5:
        found.append(evidence(f"the decay term is {ratio:.2g} of the gradient", 1.5))
    found.append(view.fails(1.5, 1.5))
    return Finding(tuple(found), (), 0, f"weight_decay {decay:g} shrinks the weights faster than they learn.")


def _shrink(view: View, name: str) -> float:
    values = view.param(name, m.P_WEIGHT).finite().values
    return float(values[-1] / values[0]) if len(values) > 5 and values[0] > 0 else float("nan")


@cause(
    "excessive_momentum",
    "Momentum is so high that the iterate overshoots.",
    explains="oscillating diverged not_learning huge_updates",
    chain=("steps keep their direction for hundreds of steps", "the iterate overshoots and swings back slowly"),
    repair="Use momentum 0.9 (beta1 0.9).",
    experiment="momentum 0.9 / beta1 0.9",
)
def excessive_momentum(view: View) -> Finding | None:
    momentum = view.setting("momentum", view.setting("betas.0", 0.0))
    if not momentum > 0.95:
        return None
    weight = float(np.clip(1.5 + 2.5 * math.log10(0.05 / max(1 - momentum, 1e-4)), 1.0, 5.0))
    found = [evidence(f"momentum {momentum:g} averages over {1 / max(1 - momentum, 1e-9):.0f} steps", weight), view.fails(2.0, 4.0)]
    return Finding(tuple(found), (), 0, f"Momentum {momentum:g} overshoots.")


@cause(
    "excessive_clipping",
    "Clipping scales every gradient down by orders of magnitude.",
    explains="not_learning slow tiny_updates",
    chain=("the norm before clipping is far above the limit at every step", "the clipped gradient is a tiny fraction", "the weights hardly move"),
    repair="Raise the clipping limit to about the usual gradient norm, or remove clipping.",
    experiment="no clipping",
    rivals={"clip_before_unscale": "there the gradients still carry the loss scale when they are clipped"},
)
def excessive_clipping(view: View) -> Finding | None:
    norm = view.record.series(Kind.OPTIMIZER, "0", m.O_CLIP_NORM).finite()
    limit = view.record.series(Kind.OPTIMIZER, "0", m.O_CLIP_LIMIT).median()
    if len(norm) < 3 or not limit > 0:
        return None
    factor = float(np.quantile(norm.values, 0.2)) / limit
    if factor < 10 or view.count(m.N_CLIP_BEFORE_UNSCALE):
        return None
    found = [
        evidence(f"the gradient norm is {factor:.3g} times the limit {limit:g} in four of five steps", min(1.5 * math.log10(factor), 4.5)),
        view.fails(2.0, 4.0),
    ]
    if view.adaptive:
        found.append(evidence("the optimizer rescales gradients, so constant clipping changes little", -3.0))
    return Finding(tuple(found), (), int(norm.steps[0]), f"Clipping to {limit:g} leaves 1/{factor:.3g} of the gradient.")


@cause(
    "exploding_recurrence",
    "Gradients through time explode and are not clipped.",
    explains="nonfinite diverged exploding huge_updates not_learning",
    chain=("the recurrence multiplies the signal at every time step", "gradients grow exponentially with the sequence", "one step throws the weights far away"),
    repair="Clip the gradient norm (torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)) or shorten the sequence.",
    experiment="clip to norm 1",
    rivals={"lr_too_high": "there a feed-forward model fails as well"},
    references=("Pascanu et al., On the difficulty of training RNNs, 2013",),
)
def exploding_recurrence(view: View) -> Finding | None:
    repeated = [x for x in view.layers if x.calls >= 5 or x.kind in ("LSTM", "GRU", "RNN")]
    if not repeated or view.trouble.level == 0:
        return None
    clipped = len(view.record.series(Kind.OPTIMIZER, "0", m.O_CLIP_LIMIT)) > 0
    module = max(repeated, key=lambda x: _grad(view, x.name))
    grad = _grad(view, module.name)
    found = [
        evidence(f"{module.name} is applied {module.calls} times in a step", 1.0, where=module.name),
        view.fails(1.5, 5.0),
        evidence("no gradient clipping was seen", 0.5) if not clipped else evidence("gradients are clipped", -3.0),
    ]
    if view.trouble.kind in ("nonfinite", "diverged"):
        found.append(evidence("the run diverges", 1.5))
    weight = float(np.clip(1.5 * math.log10(max(grad, 1e-6) / 10.0), -2.0, 3.0))
    found.append(evidence(f"the gradient norm of its weights is {grad:.3g}", weight, where=module.name))
    return Finding(tuple(found), (module.name,), view.trouble.step, f"Gradients through {module.name} explode over time steps.")


def _grad(view: View, module: str) -> float:
    norms = [view.param(p.name, m.P_GRAD).finite().values[:5] for p in view.params_of(module)]
    tops = [float(v.max()) for v in norms if len(v)]
    return max(tops, default=0.0)


@cause(
    "optimizer_misconfigured",
    "Settings of the optimizer make its steps useless.",
    explains="not_learning slow tiny_updates nonfinite",
    chain=("eps or betas are far from sound", "the preconditioned step vanishes or goes stale"),
    repair="Use the optimizer's default eps and betas.",
    experiment="default settings",
)
def optimizer_misconfigured(view: View) -> Finding | None:
    eps, beta2 = view.setting("eps"), view.setting("betas.1", 0.999)
    found = []
    if view.adaptive and eps >= 1e-4:
        grads = [view.usual(view.param(p.name, m.P_GRAD)) / math.sqrt(p.numel) for p in view.weights]
        grads = [g for g in grads if math.isfinite(g)]
        rms = float(np.median(grads)) if grads else float("nan")
        if rms > 0 and eps > 3 * rms:
            weight = float(np.clip(2.0 + 1.5 * math.log10(eps / rms), 2.0, 5.0))
            found.append(evidence(f"eps {eps:g} is {eps / rms:.3g} times the gradient's scale and swallows it", weight))
    if view.adaptive and (beta2 < 0.5 or beta2 > 0.99999):
        found.append(evidence(f"beta2 {beta2:g} is far from sound", 3.0))
    if not found:
        return None
    found.append(view.fails(2.0, 4.0))
    return Finding(tuple(found), (), 0, f"The optimizer's settings (eps {eps:g}, beta2 {beta2:g}) defeat its steps.")
