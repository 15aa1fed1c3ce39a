"""Faults of number formats and of distribution."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.facts import Kind, ParamFact
from neuraldbg.core.offender import first_nonfinite, forward_offender
from neuraldbg.core.silence import always_zero, silenced
from neuraldbg.core.view import WEIGHT_LAYERS, View

FP16_MAX = 65504.0
MEASURED = 8.0  # nats: a second run of the same script is no inference but a measurement
FP16_TINY = 6e-8  # smallest subnormal number of float16
FP16_LEAST = 6.1e-5  # smallest normal number of float16; below it, digits are lost
EARLY = 10  # looks from the start, before a sound run's gradients have become small
# Of so few numbers above zero, rounding leaves no gradient; a rectifier alone zeroes half.
STEPS_LEFT, MOSTLY_ZERO = 32, 0.6
LOOKS = 5  # so many looks at which a gradient is exactly zero are no chance


@cause(
    "half_precision_overflow",
    "Values exceed the range of float16.",
    explains="nonfinite diverged",
    chain=("an activation passes 65504", "float16 makes it infinite", "the loss becomes NaN"),
    repair="Use bfloat16 or float32 for this layer, or scale the values down.",
    experiment="float32",
)
def _half_precision_overflow(view: View) -> Finding | None:
    if not _half(view):
        return None
    peaks = {
        x.name: view.module(x.name, m.ACT_ABSMAX).finite().values for x in view.record.called()
    }
    near = {n: float(v.max()) for n, v in peaks.items() if len(v) and v.max() > FP16_MAX / 4}
    between = _overflowed_into(view)
    name = next(
        (x.name for x in view.record.called() if _overflows(view, x.name)),
        between or max(near, key=near.__getitem__, default=""),
    )
    if not name:
        return None
    found = [view.fails(2.5, 4.0)]
    if name in near:
        text = f"{name} reaches {near[name]:.3g}, float16 ends at 65504"
        found.append(evidence(text, 3.5, where=name))
    if _overflows(view, name):
        text = f"{name} computes in float16 and gives infinity from finite input"
        found.append(evidence(text, 5.0, where=name))
    elif name == between:
        text = (
            f"{name} receives infinity where all that ran before it in float16 gave finite numbers"
        )
        found.append(evidence(text, 4.5, where=name))
    return Finding(tuple(found), (name,), None, f"{name} overflows float16.")


def _overflows(view: View, name: str) -> bool:
    """Whether a module made a non-finite value at its first look, and received none.

    Later, when weights may be spoilt, only a sum of products is believed: of finite numbers
    nothing but the range of its format makes it infinite.
    """
    out, into = (view.module(name, k).values[:1] for k in (m.ACT_NONFINITE, m.IN_NONFINITE))
    given = [s.values[:1].sum() for n, s in view.record.each(Kind.BATCH, m.B_NONFINITE)]
    if len(out) and out[0] > 0 and not into.sum() > 0 and not sum(given) > 0:
        return True
    step = first_nonfinite(view)
    made = None if step is None else forward_offender(view, step)
    module = view.record.module(name)
    sums = module is not None and module.kind in WEIGHT_LAYERS
    return made is not None and made.where == (name,) and sums


def _overflowed_into(view: View) -> str:
    """The first module that receives an infinity which no module made; empty if none does.

    It comes from the user's own arithmetic between the modules: a square, a sum, an exponential.
    """
    for x in view.record.called():
        top = view.module(x.name, m.IN_ABSMAX).values[:1]
        if len(top) and np.isinf(top[0]):
            return x.name
        made = view.module(x.name, m.ACT_NONFINITE).values[:1]
        if x.leaf and made.sum() > 0:
            return ""
    return ""


def _half(view: View) -> bool:
    return view.note(m.N_AUTOCAST) == "float16" or any(
        p.dtype == "float16" for p in view.facts.params
    )


@cause(
    "half_precision_underflow",
    "Gradients or optimizer constants are below the smallest float16 number.",
    explains="nonfinite not_learning vanishing frozen zero_gradient",
    chain=(
        "small numbers become zero in float16",
        "gradients are lost, or a division by a lost epsilon gives NaN",
        "the run stalls or turns NaN",
    ),
    repair="Scale the loss (torch.amp.GradScaler), keep float32 master weights, or raise eps to 1e-4.",
    experiment="loss scaling, float32",
)
def _half_precision_underflow(view: View) -> Finding | None:
    if not _half(view):
        return None
    found = []
    whole = any(p.dtype == "float16" for p in view.weights)
    eps = view.setting("eps")
    if whole and view.adaptive and eps < FP16_TINY:
        found.append(
            evidence(
                f"eps {eps:g} is zero in float16, and the weights are float16: the step divides by zero",
                6.0,
                step=0,
            )
        )
    zeros = [view.usual(view.module(x.name, m.GRAD_ZERO)) for x in view.layers]
    zeros = [z for z in zeros if math.isfinite(z)]
    if not view.note(m.N_SCALER) and zeros and max(zeros) > 0.5:
        found.append(
            evidence(
                f"up to {max(zeros):.0%} of a layer's gradients are exactly zero, without loss scaling",
                3.0,
            )
        )
    lost = [] if view.note(m.N_SCALER) else _lost(view) or _mostly_lost(view) or _coarse(view)
    if lost:
        # Sure, whatever the loss does: another part of the model may make it fall.
        found.insert(
            0,
            evidence(
                f"{lost[0].module} and {len(lost) - 1} more get gradients of which most are zero, "
                "while others do not; the largest that come near are at the end of float16's range",
                4.5,
                where=lost[0].module,
                step=0,
            ),
        )
    if not found:
        return None
    found.append(view.fails(2.0, 4.0))
    told, places = found[0].text, tuple(p.module for p in lost)
    return Finding(tuple(found), places, 0, told[0].upper() + told[1:] + ".")


def _lost(view: View) -> list[ParamFact]:
    """Weights whose gradient is zero at every look, ahead of one that float16 barely holds."""
    lost = [p for p in view.weights if always_zero(view, p.name, LOOKS)]
    behind = [view.usual(view.module(x.name, m.GRAD_ABSMAX)) for x in view.layers]
    return lost if any(0 < g < FP16_LEAST for g in behind) else []


def _mostly_lost(view: View) -> list[ParamFact]:
    """Weights whose gradient is zero at most looks, and at the others what float16 barely holds."""
    quiet = [p for p in view.weights if view.usual(view.param(p.name, m.P_GRAD)) == 0]
    tops = {p.name: view.module(p.module, m.GRAD_ABSMAX).finite().values for p in quiet}
    return [p for p in quiet if 0 < tops[p.name].max(initial=0.0) < FP16_LEAST]


def _coarse(view: View) -> list[ParamFact]:
    """Weights whose gradients begin as the last few numbers of float16, most of them zero."""
    return [
        p
        for p in view.weights
        if 0 < view.usual(view.module(p.module, m.GRAD_ABSMAX), EARLY) < STEPS_LEFT * FP16_TINY
        and view.usual(view.module(p.module, m.GRAD_ZERO), EARLY) > MOSTLY_ZERO
    ]


@cause(
    "low_precision_update",
    "The weights are too coarse for the update.",
    explains="not_learning frozen",
    chain=(
        "the update is smaller than half a unit in the last place of the weight",
        "rounding throws it away",
        "the weights do not move although the step is not zero",
    ),
    repair="Keep the weights in float32 (mixed precision instead of .bfloat16()).",
    experiment="float32 weights",
    needs_update=True,
)
def _low_precision_update(view: View) -> Finding | None:
    coarse = [p for p in view.weights if p.dtype in ("bfloat16", "float16")]
    if not coarse:
        return None
    still = [view.usual(view.param(p.name, m.P_STILL)) for p in coarse]
    still = [s for s in still if math.isfinite(s)]
    if not still:
        return None
    share = float(np.median(still))
    found = [
        evidence(
            f"{share:.0%} of the {coarse[0].dtype} weights do not change in a step",
            float(np.clip(8.0 * (share - 0.5), -3.0, 3.5)),
            where=coarse[0].name,
        ),
        view.fails(2.0, 2.5),
    ]
    return Finding(
        tuple(found),
        tuple(p.name for p in coarse[:8]),
        0,
        f"Updates are lost in the rounding of {coarse[0].dtype} weights.",
    )


@cause(
    "clip_before_unscale",
    "Gradients are clipped while they still carry the loss scale.",
    explains="not_learning tiny_updates",
    chain=(
        "the loss scaler multiplies gradients by thousands",
        "clipping cuts them to the limit before they are divided again",
        "what is left of the update is the limit over the scale",
    ),
    repair="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
    experiment="unscale first",
    rivals={"excessive_clipping": "there no loss scale is involved"},
    needs_update=True,
)
def _clip_before_unscale(view: View) -> Finding | None:
    clips = view.count(m.N_CLIP_BEFORE_UNSCALE)
    if not clips:
        return None
    scale = view.record.series(Kind.OPTIMIZER, "0", m.O_SCALE).median()
    found = [
        evidence(
            f"{clips} times gradients were clipped before the loss scale ({scale:.3g}) was taken out",
            6.0,
            step=0,
        ),
        view.fails(1.5, 1.5),
    ]
    return Finding(
        tuple(found), (), 0, f"Gradients are clipped while they carry the loss scale {scale:.3g}."
    )


@cause(
    "rank_divergence",
    "The ranks hold different parameters.",
    explains="diverged",
    chain=("parameters of the ranks drift apart", "averaged gradients fit none of them"),
    repair="Wrap the model in DistributedDataParallel and call the wrapper, not the module inside.",
)
def _rank_divergence(view: View) -> Finding | None:
    for name, series in view.record.each(Kind.RUN, m.R_RANK_SPREAD):
        good = series.finite()
        if len(good) and good.values.max() > 1e-5:
            step = int(good.steps[int(np.argmax(good.values > 1e-5))])
            return Finding(
                (
                    evidence(
                        f"the parameters of the ranks differ by {good.values.max():.3g} of their scale",
                        6.0,
                        where=name,
                        step=step,
                    ),
                ),
                (),
                step,
            )
    return None


@cause(
    "compiler_divergence",
    "The compiled model computes something else than the eager one.",
    explains="not_learning nonfinite diverged zero_gradient",
    chain=(
        "a compiled operator gives another result than its eager version",
        "all that follows differs",
    ),
    repair="Run that module eagerly (torch.compiler.disable) and report the operator.",
    experiment="eager",
)
def _compiler_divergence(view: View) -> Finding | None:
    found = [
        (int(series.steps[int(np.argmax(series.values > 1))]), name, float(series.values.max()))
        for name, series in view.record.each(Kind.MODULE, m.COMPILED_GAP)
        if (series.values > 1).any()
    ]
    if not found:
        return _lost_gradient(view)
    step, name, gap = min(found)
    place = name or "the model itself"
    by = f"by {gap:.3g} times the expected rounding" if np.isfinite(gap) else "in being finite"
    return Finding(
        (evidence(f"{place} differs from eager {by}", MEASURED, where=name, step=step),),
        (name,),
        step,
        f"From step {step} on {place} computes something else than in eager mode.",
    )


def _lost_gradient(view: View) -> Finding | None:
    """Compiled code that gives a zero gradient where a library layer must pass one on."""
    lost = silenced(view) if view.facts.run.compiled else None
    if lost is None or not lost.passed_by:
        return None
    last = lost.layers[0]
    text = (
        f"{lost.nearest} gets a gradient and its units are alive, yet {last} right before it gets "
        "exactly zero at every look: the compiled backward pass loses it"
    )
    return Finding(
        (evidence(text, 6.5, where=last, step=lost.step), view.fails(1.0, 0.0)),
        lost.layers,
        lost.step,
        f"No gradient reaches {last} in the compiled model.",
        "Run the script with `neuraldbg run --compare-eager`, which tells whether eager mode trains "
        f"{last}; then keep that part out of torch.compile (torch.compiler.disable) and report it.",
    )
