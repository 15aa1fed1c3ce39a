"""Faults of the activations: squashing, missing, too few units."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.initialisation import GAIN_LOW, gain
from neuraldbg.core.causes.loop import listed
from neuraldbg.core.facts import ModuleFact
from neuraldbg.core.view import BATCHNORM, DROPOUT, View, drop_probability

RECURRENT = frozenset({"LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"})
SQUASHING = frozenset({"Sigmoid", "Tanh", "Softsign", "Hardsigmoid"})


# Elementwise activations: whatever lies around one is no longer one linear map.
BENDING = SQUASHING | {
    "ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "SELU", "CELU", "GELU", "SiLU",
    "Mish", "Softplus", "Hardtanh", "Hardswish", "Softshrink", "Hardshrink", "Tanhshrink",
    "GLU", "Softmax",
}  # fmt: skip
LINEAR = frozenset({"Linear", "Conv1d", "Conv2d", "Conv3d"})
BENDING_OPS = frozenset({"Tanh", "Sigmoid", "Gelu", "Silu", "Relu", "Elu", "LeakyRelu", "Softplus"})
NARROW = 4
# Few units, and how many classes for each of them make a crowd: their logits have that rank.
FEW_UNITS, CROWD = 16, 3
# A hidden layer this many times wider than what it takes and what is made of it.
WIDER = 1.5
# A tanh keeps the gradient's scale where it is not flat; a healthy layer is seldom flat.
TANH_SOUND = 0.2


def gradient_profile(view: View) -> list[tuple[str, float]]:
    """Early gradient scale at the output of each layer, in order of execution."""
    out = []
    for layer in view.layers:
        value = view.usual(view.module(layer.name, m.GRAD_RMS), 10)
        if math.isfinite(value) and value > 0:
            out.append((layer.name, value))
    return out


@cause(
    "saturating_activation",
    "Stacked sigmoid or tanh activations squash the gradient.",
    explains="vanishing saturated not_learning zero_gradient",
    chain=(
        "each sigmoid passes at most a quarter of the gradient (a saturated tanh even less)",
        "early layers get almost none",
        "they do not learn",
    ),
    repair="Use ReLU (or GELU) between layers; keep a sigmoid only at the output.",
    experiment="ReLU in their place",
    rivals={"depth_without_normalization": "there the activations do not saturate"},
    references=("Glorot and Bengio 2010", "Hochreiter 1991"),
    yields_to="bad_bias_init init_too_large unnormalized_input nonfinite_input eval_mode_training "
    "unscaled_targets",
)
def _saturating_activation(view: View) -> Finding | None:
    order = view.record.called()
    leaves = [x for x in order if x.leaf]
    squashing = [x for x in leaves if x.kind in SQUASHING]
    inner = [x for x in squashing if leaves and x is not leaves[-1]]
    functional = _functional(view)
    count = max(len(inner), functional)
    if count < 2:
        return None
    profile = gradient_profile(view)
    shrink = profile[-1][1] / profile[0][1] if len(profile) > 1 else 1.0
    flat = [(x.name, view.usual(view.module(x.name, m.ACT_FLAT))) for x in inner]
    flat = [f for f in flat if math.isfinite(f[1])]
    first = inner[0].name if inner else (profile[0][0] if profile else "")
    found = [
        evidence(
            f"{count} sigmoid or tanh activations lie between the layers",
            min(0.5 + 0.25 * count, 2.0),
            where=first,
        )
    ]
    quiet = "" if inner else _starts_near_zero(view)
    if quiet:
        text = f"{quiet} starts near zero: little gradient comes through it at first, by intention"
        found.append(evidence(text, -2.0, where=quiet))
    elif shrink > 10:
        found.append(
            evidence(
                f"the gradient shrinks {shrink:.3g}-fold from the last layer to the first",
                min(1.2 * math.log10(shrink), 3.5),
                where=profile[0][0],
            )
        )
    else:
        found.append(
            evidence(f"the gradient keeps its scale through the layers (ratio {shrink:.2g})", -2.0)
        )
    if flat and max(f[1] for f in flat) > 0.5:
        name, share = max(flat, key=lambda f: f[1])
        found.append(
            evidence(f"{share:.0%} of the values of {name} are in its flat region", 1.5, where=name)
        )
    if inner and not any(x.kind in ("Sigmoid", "Hardsigmoid") for x in inner):
        top = max((f[1] for f in flat), default=math.nan)
        if top < TANH_SOUND:
            text = f"no tanh is flat for more than {top:.0%} of its values, and tanh passes the gradient"
            found.append(evidence(text, -2.5))
    found.append(view.fails(2.0, 3.0))
    if view.trouble.level == 0.0:
        # Branches (actor and critic, couplings of a flow) have gradients of scales of their own.
        weight = -4.0 if view.learning.by_reward else -2.0
        found.append(evidence("nothing fails for which the gradient would be too small", weight))
    names = tuple(x.name for x in inner) or tuple(n for n, _ in profile[:2])
    return Finding(
        tuple(found),
        names,
        0,
        f"{count} stacked sigmoid/tanh activations squash the gradient {shrink:.2g}-fold.",
    )


def _starts_near_zero(view: View) -> str:
    """A weight that starts far below the variance-preserving scale; empty if none does.

    The ends of coupling nets and of residual branches do, so that the whole starts as identity.
    """
    return next((p.name for p in view.weights if gain(p) < GAIN_LOW), "")


def _functional(view: View) -> int:
    """Sigmoid and tanh operations in the loss graph that are not modules, nor a cell's gates."""
    if any(x.kind in RECURRENT for x in view.facts.modules):
        return 0  # written out on some devices: gates pass the gradient beside them
    ops = list(view.loss.ops) if view.loss else []
    return max(sum(op in ("Sigmoid", "Tanh") for op in ops) - 1, 0)


@cause(
    "missing_nonlinearity",
    "Linear layers follow each other with nothing between them.",
    explains="not_learning",
    chain=(
        "stacked linear layers are one linear layer",
        "the model can only fit a linear function",
        "the loss stalls at the linear optimum",
    ),
    repair="Insert a non-linear activation (ReLU, GELU) between the linear layers.",
    experiment="insert ReLU",
    rivals={
        "insufficient_capacity": "there the activations are present, but the layers are too narrow"
    },
)
def _missing_nonlinearity(view: View) -> Finding | None:
    straight = _straight(view)
    chain = _linear_chain(view, straight)
    if len(chain) < 2 or not _is_all(view, chain):
        return _widened_for_nothing(view, straight)
    text = f"{listed(tuple(x.name for x in chain))} follow each other: each receives exactly what the one before gave"
    found = [
        evidence(text, 3.0 + 0.5 * min(len(chain), 4), where=chain[0].name),
        view.fails(2.0, 3.0),
    ]
    unused = _unused(view)
    if unused:
        found.append(evidence(f"{listed(tuple(unused))} was made, and is never called", 2.0))
    names = tuple(x.name for x in chain)
    parents = tuple(dict.fromkeys(n.rpartition(".")[0] for n in names if "." in n))
    return Finding(
        tuple(found),
        names + parents,
        0,
        f"There is no non-linearity between {names[0]} and {names[-1]}.",
    )


def _widened_for_nothing(view: View, straight: frozenset[str]) -> Finding | None:
    """Two layers of a model that bends elsewhere, of which the first gives more than both can use.

    A narrow layer between two others is a factorisation; a wide one serves an activation only.
    """
    for giver, taker in pairwise(view.layers):
        if {giver.kind, taker.kind} != {"Linear"} or taker.name not in straight:
            continue
        width, ends = _outputs(giver), max(_inputs(giver), _outputs(taker))
        if width < WIDER * ends or not ends:
            continue
        text = (
            f"{taker.name} receives exactly what {giver.name} gave: {_inputs(giver)} numbers become "
            f"{width} and then {_outputs(taker)}, which one layer does as well"
        )
        found = (evidence(text, 4.0, where=giver.name), view.fails(2.0, 0.5))
        told = f"There is no non-linearity between {giver.name} and {taker.name}."
        return Finding(found, (giver.name, taker.name), 0, told)
    return None


def _straight(view: View) -> frozenset[str]:
    """Layers that receive exactly what the linear layer before them gave."""
    drops = {0.0, *(drop_probability(x) for x in view.kinds(DROPOUT))}
    bends = [x.order or 0 for x in view.record.called() if x.kind in BENDING]
    return frozenset(
        taker.name
        for giver, taker in pairwise(view.layers)
        if giver.kind in LINEAR
        and not _bent(bends, giver, taker)
        and _direct(view, giver, taker, drops)
    )


def _linear_chain(view: View, straight: frozenset[str]) -> list[ModuleFact]:
    """The longest run of linear layers that feed each other directly."""
    best: list[ModuleFact] = []
    run: list[ModuleFact] = []
    for x in view.layers:
        direct = bool(run) and x.name in straight
        run = [*run, x] if direct else [x] if x.kind in LINEAR else []
        best = max(best, run, key=len)
    return best


def _bent(bends: list[int], giver: ModuleFact, taker: ModuleFact) -> bool:
    """Whether an activation lies between two layers: a tanh of small numbers changes none.

    Args:
        bends: Where activations run, in order of execution.
        giver: The layer before.
        taker: The layer after.
    """
    next_bend = bisect_right(bends, giver.order or 0)
    return next_bend < len(bends) and bends[next_bend] < (taker.order or 0)


def _is_all(view: View, chain: list[ModuleFact]) -> bool:
    """Whether the chain is the whole of what the model computes, up to a linear rest."""
    hidden = [x for x in view.layers if not x.kind.startswith("Embedding")]
    ops = view.loss.ops if view.loss else ()
    if sum(op in BENDING_OPS for op in ops) >= len(chain) - 1:
        return False
    if len(chain) >= len(hidden):
        return True
    if any(x.kind in BENDING for x in view.record.called()) or any(op in BENDING_OPS for op in ops):
        return False
    if any(x.kind not in LINEAR for x in hidden):
        return False  # recurrence and attention bend, too
    # Functions inside a compiled graph are not seen: then nearly all must be in the chain.
    hides = "CompiledFunction" in ops
    return len(chain) >= (max(len(hidden) - 1, 3) if hides else (len(hidden) + 1) // 2)


def _passed_on(view: View, giver: ModuleFact, taker: ModuleFact) -> str:
    """The last module between two layers that keeps a linear function linear; else the giver."""
    first, last = giver.order or 0, taker.order or 0
    between = [x for x in view.record.called() if first < (x.order or 0) < last and x.leaf]
    straight = bool(between) and all(x.kind in BATCHNORM for x in between)
    return between[-1].name if straight else giver.name


def _unused(view: View) -> list[str]:
    """Activations that were made and are never called, in modules that are."""
    ran = {x.name for x in view.record.called()}
    return [
        x.name
        for x in view.facts.modules
        if x.kind in BENDING and x.order is None and x.name.rpartition(".")[0] in ran
    ]


def _direct(view: View, giver: ModuleFact, taker: ModuleFact, drops: set[float]) -> bool:
    """Whether the input of one layer is the output of another, up to dropout.

    Dropout leaves the share p of zeros and scales the rest by 1 / (1 - p), so the root
    mean square grows by 1 / sqrt(1 - p); a rectifier leaves zeros and shrinks it.
    """
    given = view.usual(view.module(_passed_on(view, giver, taker), m.ACT_RMS), 5)
    taken = view.usual(view.module(taker.name, m.IN_RMS), 5)
    zeros = view.usual(view.module(taker.name, m.IN_ZERO), 5)
    if not (given > 0 and taken > 0):
        return False
    if zeros == 0:
        return abs(taken / given - 1) < 1e-4
    dropped = any(abs(zeros - p) < 0.05 for p in drops if p > 0)
    return dropped and abs(taken / given * math.sqrt(1 - zeros) - 1) < 0.05


@cause(
    "insufficient_capacity",
    "Too few units, or a bottleneck, for the task.",
    explains="not_learning",
    chain=(
        "a layer has too few units for what must pass through it",
        "gradients and updates are healthy",
        "the loss settles at a high floor",
    ),
    repair="Widen the narrowest hidden layer.",
    experiment="widen",
    rivals={"missing_nonlinearity": "there a non-linearity is missing"},
    yields_to="missing_nonlinearity output_activation_mismatch wrong_loss lr_too_high "
    "init_symmetric",
)
def _insufficient_capacity(view: View) -> Finding | None:
    hidden = sorted((x for x in view.layers[:-1] if _outputs(x)), key=_outputs)
    narrow = next((x for x in hidden if _is_taken(view, x)), None)
    if narrow is None:
        return None
    width, given = _outputs(narrow), _inputs(narrow)
    if width >= given + 2:
        return None
    crowd = 0 if narrow.kind.startswith("Conv") else _crowd(view, width)
    if width > NARROW and not crowd:
        return None
    flat = _flat_end(view)
    text = f"{narrow.name} has only {width} units for {given} inputs"
    weight = max(4.5 - 0.7 * width, 1.5 * math.log2(max(crowd / width, 1.0)))
    if crowd:
        text += f", by which {crowd} classes are to be told apart"
    found = [
        evidence(text, min(weight, 4.0), where=narrow.name),
        evidence(
            "the loss is flat over the last part of the run" if flat else "the loss still falls",
            1.5 if flat else -1.5,
        ),
        view.fails(2.0, 2.5),
    ]
    return Finding(
        tuple(found), (narrow.name,), None, f"{narrow.name} with {width} units is too narrow."
    )


def _crowd(view: View, width: int) -> int:
    """How many classes a layer of few units is to tell apart; 0 if they are no crowd for it."""
    fact = view.loss
    asked = fact.target if fact is not None and fact.kind == "cross_entropy" else None
    classes = (asked.distinct or 0) if asked is not None and asked.integral else 0
    return classes if width <= FEW_UNITS and classes >= CROWD * width else 0


def _size(module: ModuleFact, *names: str) -> int:
    sizes = [x for n in names if isinstance(x := module.config.get(n), int)]
    return int(sizes[0]) if sizes else 0


def _outputs(module: ModuleFact) -> int:
    """Units (or channels) that a layer gives; 0 if unknown."""
    return _size(module, "out_features", "hidden_size", "out_channels")


def _inputs(module: ModuleFact) -> int:
    """Units (or channels) that a layer takes; 0 if unknown."""
    return _size(module, "in_features", "input_size", "in_channels", "num_embeddings")


def _is_taken(view: View, module: ModuleFact) -> bool:
    """Whether a later layer of the same model takes what this one gives: it is no head."""
    width, order = _outputs(module), module.order or 0
    if module.kind in ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"):
        return True
    return any(
        _inputs(x) == width and view.root_of(x.name) == view.root_of(module.name)
        for x in view.layers
        if (x.order or 0) > order
    )


def _flat_end(view: View) -> bool:
    values = view.path.series.finite().values
    if len(values) < 20:
        return False
    half, tail = values[len(values) // 2 : 3 * len(values) // 4], values[-len(values) // 8 :]
    return bool(
        abs(np.median(half) - np.median(tail)) < 0.03 * abs(np.median(half)) + 2 * view.path.noise
    )
