"""Faults of the architecture: activations, depth, normalisation, dropout, capacity, modes."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.loop import listed
from neuraldbg.core.facts import ModuleFact
from neuraldbg.core.view import BATCHNORM, DROPOUT, NORMALISATION, View

SQUASHING = frozenset({"Sigmoid", "Tanh", "Softsign", "Hardsigmoid"})
# Layers from which a plain stack counts as deep; He et al. (2015) see plain nets degrade
# between 20 and 56, sigmoid stacks fail from about 5.
DEEP = 8
SHRINK = 100.0
DROP_MUCH = 0.6
NARROW = 4


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
    explains="vanishing saturated not_learning plateau",
    chain=("each sigmoid passes at most a quarter of the gradient (a saturated tanh even less)", "early layers get almost none", "they do not learn"),
    repair="Use ReLU (or GELU) between layers; keep a sigmoid only at the output.",
    experiment="ReLU in their place",
    rivals={"depth_without_normalization": "there the activations do not saturate"},
    references=("Glorot and Bengio 2010", "Hochreiter 1991"),
)
def saturating_activation(view: View) -> Finding | None:
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
    found = [evidence(f"{count} sigmoid or tanh activations lie between the layers", min(0.5 + 0.25 * count, 2.0), where=first)]
    if shrink > 10:
        found.append(evidence(f"the gradient shrinks {shrink:.3g}-fold from the last layer to the first", min(1.2 * math.log10(shrink), 3.5), where=profile[0][0]))
    else:
        found.append(evidence(f"the gradient keeps its scale through the layers (ratio {shrink:.2g})", -2.0))
    if flat and max(f[1] for f in flat) > 0.5:
        name, share = max(flat, key=lambda f: f[1])
        found.append(evidence(f"{share:.0%} of the values of {name} are in its flat region", 1.5, where=name))
    found.append(_stuck(view))
    names = tuple(x.name for x in inner) or tuple(n for n, _ in profile[:2])
    return Finding(tuple(found), names, 0, f"{count} stacked sigmoid/tanh activations squash the gradient {shrink:.2g}-fold.")


def _functional(view: View) -> int:
    """Sigmoid and tanh operations in the loss graph that are not modules."""
    ops = list(view.loss.ops) if view.loss else []
    return max(sum(op in ("Sigmoid", "Tanh") for op in ops) - 1, 0)


def _stuck(view: View) -> object:
    """Failure that a loss stuck above its floor shows too, even below the chance level."""
    return view.fails(2.0, 3.0)


@cause(
    "depth_without_normalization",
    "A deep plain stack has neither normalisation nor skip connections.",
    explains="vanishing exploding not_learning collapsed plateau",
    chain=("each layer scales the signal by a factor off one", "over many layers the factor becomes a power", "gradients or activations vanish or explode with depth"),
    repair="Add normalisation between the blocks (BatchNorm, LayerNorm) or skip connections.",
    experiment="add normalisation between blocks",
    rivals={"saturating_activation": "there the activations themselves are flat", "init_too_small": "there the initial weights are off"},
    references=("He et al. 2015", "Ioffe and Szegedy 2015"),
)
def depth_without_normalization(view: View) -> Finding | None:
    layers = [x for x in view.layers if not x.kind.startswith("Embedding")]
    if len(layers) < DEEP or view.kinds(NORMALISATION):
        return None
    ops = view.loss.ops if view.loss else ()
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
        evidence(f"{len(layers)} layers in a row without normalisation or skip connection", 1.5, where=layers[0].name),
        evidence(f"the gradient changes by a factor of {10**span:.2g} over the depth", float(np.clip(1.3 * (span - 1.5), -2.0, 3.0)), where=profile[0][0]),
        evidence(f"the variation between samples changes {spread:.2g}-fold over the depth", float(np.clip(math.log10(max(spread, 1e-9)) - 1.0, -0.5, 2.0))),
        view.fails(2.5, 5.0),
    ]
    return Finding(tuple(found), tuple(x.name for x in layers), 0, f"{len(layers)} plain layers without normalisation: the signal fades with depth.")


def _signal_span(view: View, layers: list[ModuleFact]) -> float:
    rms = [view.usual(view.module(x.name, m.ACT_RMS), 3) for x in layers]
    rms = [x for x in rms if math.isfinite(x) and x > 0]
    return max(rms) / min(rms) if rms else 1.0


@cause(
    "missing_nonlinearity",
    "Linear layers follow each other with nothing between them.",
    explains="not_learning plateau",
    chain=("stacked linear layers are one linear layer", "the model can only fit a linear function", "the loss stalls at the linear optimum"),
    repair="Insert a non-linear activation (ReLU, GELU) between the linear layers.",
    experiment="insert ReLU",
    rivals={"insufficient_capacity": "there the activations are present, but the layers are too narrow"},
)
def missing_nonlinearity(view: View) -> Finding | None:
    chain = _linear_chain(view)
    hidden = [x for x in view.layers if not x.kind.startswith("Embedding")]
    if len(chain) < 2 or len(chain) < len(hidden):
        return None
    text = f"{listed(tuple(x.name for x in chain))} follow each other: each receives exactly what the one before gave"
    found = [evidence(text, 3.0 + 0.5 * min(len(chain), 4), where=chain[0].name), view.fails(2.0, 3.0)]
    names = tuple(x.name for x in chain)
    parents = tuple(dict.fromkeys(n.rpartition(".")[0] for n in names if "." in n))
    return Finding(tuple(found), names + parents, 0, f"There is no non-linearity between {names[0]} and {names[-1]}.")


def _linear_chain(view: View) -> list[ModuleFact]:
    """The longest run of linear layers that feed each other directly."""
    leaves = [x for x in view.record.called() if x.leaf]
    best: list[ModuleFact] = []
    run: list[ModuleFact] = []
    drop = 0.0
    for x in leaves:
        if x.kind in DROPOUT:
            drop = _p(x)
        elif x.kind == "Linear":
            direct = bool(run) and _direct(view, run[-1], x, drop)
            run = [*run, x] if direct else [x]
            best, drop = max(best, run, key=len), 0.0
        elif x.kind not in ("Identity", "Flatten"):
            run, drop = [], 0.0
    return best


def _direct(view: View, giver: ModuleFact, taker: ModuleFact, drop: float) -> bool:
    """Whether the input of one layer is the output of another, up to dropout."""
    given = view.usual(view.module(giver.name, m.ACT_RMS), 5)
    taken = view.usual(view.module(taker.name, m.IN_RMS), 5)
    zeros = view.usual(view.module(taker.name, m.IN_ZERO), 5)
    if not (given > 0 and taken > 0):
        return False
    if drop == 0:
        return abs(taken / given - 1) < 1e-4
    return abs(taken / given * math.sqrt(1 - drop) - 1) < 0.1 and abs(zeros - drop) < 0.1


def _p(module: ModuleFact) -> float:
    value = module.config.get("p", 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0


@cause(
    "batchnorm_small_batch",
    "Batch normalisation works on too few samples.",
    explains="not_learning noisy",
    chain=("the statistics of a batch come from a handful of values", "they are mostly noise", "training is noisy and evaluation differs from it"),
    repair="Use larger batches, or GroupNorm or LayerNorm.",
    experiment="larger batch, or another normalisation",
)
def batchnorm_small_batch(view: View) -> Finding | None:
    norms = [x for x in view.kinds(BATCHNORM) if x.training is not False]
    size = view.batch("input", m.B_SIZE).median()
    if not norms or not size <= 4:
        return None
    found = [evidence(f"{len(norms)} batch normalisations see batches of {size:.0f}", 4.0 - 0.7 * size + 1.0, where=norms[0].name), view.fails(1.5, 2.0)]
    return Finding(tuple(found), tuple(x.name for x in norms), 0, f"Batch normalisation with batches of {size:.0f}.")


@cause(
    "eval_mode_training",
    "Training runs with module.eval().",
    explains="not_learning plateau overfits vanishing exploding",
    chain=("normalisation uses stale running statistics and dropout is off", "activations are not normalised", "training stalls or overfits"),
    repair="Call model.train() before training, and again after each evaluation.",
    experiment="model.train()",
)
def eval_mode_training(view: View) -> Finding | None:
    modal = [x for x in view.facts.modules if x.order is not None and (x.kind in BATCHNORM or (x.kind in DROPOUT and _p(x) > 0))]
    off = [x for x in modal if x.training is False and not _frozen(view, x)]
    if not off or len(off) < len(modal) / 2:
        return None
    norms = [x for x in off if x.kind in BATCHNORM]
    found = [evidence(f"{len(off)} of {len(modal)} normalisation and dropout modules are in eval mode during training steps", 4.0 if norms else 3.0, where=off[0].name)]
    found.append(view.fails(2.0, 1.5))
    names = tuple(x.name for x in off)
    parents = tuple(dict.fromkeys(n.rpartition(".")[0] for n in names if "." in n))
    return Finding(tuple(found), (*parents, *names), 0, f"{off[0].name} trains in eval mode.")


def _frozen(view: View, module: ModuleFact) -> bool:
    """A frozen part of the model in eval mode is fine-tuning as it should be."""
    own = view.params_of(module.name)
    if own:
        return all(not p.requires_grad for p in own)
    parent = module.name.rpartition(".")[0]
    around = [p for p in view.facts.params if not parent or p.name.startswith(parent + ".")]
    return bool(around) and all(not p.requires_grad for p in around)


@cause(
    "train_mode_inference",
    "Evaluation runs with module.train().",
    explains="",
    chain=("dropout is active and normalisation uses the statistics of the evaluation batch", "evaluation results are wrong although training is fine"),
    repair="Call model.eval() before evaluating (and model.train() afterwards).",
    experiment="model.eval()",
)
def train_mode_inference(view: View) -> Finding | None:
    modal = [x for x in view.facts.modules if x.kind in BATCHNORM or (x.kind in DROPOUT and _p(x) > 0)]
    passes, wrong = view.count(m.N_EVAL_FORWARDS), view.count(m.N_EVAL_TRAIN_MODE)
    if not modal or not wrong or wrong < passes:
        return None
    norms = any(x.kind in BATCHNORM for x in modal)
    found = [
        evidence(f"all {passes} forward passes without gradient ran in training mode", 3.5, where=modal[-1].name),
        evidence(f"the model has {len(modal)} dropout or batch normalisation modules", 2.0 if norms else 1.5),
    ]
    return Finding(tuple(found), tuple(x.name for x in reversed(modal)), None, "The model is evaluated in training mode.")


@cause(
    "excessive_dropout",
    "Dropout removes the signal.",
    explains="not_learning noisy",
    chain=("most of the signal is dropped at random", "what is left does not tell samples apart", "the training loss stays high"),
    repair="Lower the drop probability to 0.1-0.5.",
    experiment="p = 0.1",
)
def excessive_dropout(view: View) -> Finding | None:
    heavy = [x for x in view.kinds(DROPOUT) if _p(x) >= DROP_MUCH and x.training is not False]
    if not heavy:
        return None
    worst = max(heavy, key=_p)
    kept = math.prod(1 - _p(x) for x in heavy)
    found = [evidence(f"{worst.name} drops {_p(worst):.0%} of its input (all together keep {kept:.1%})", min(1.0 + 1.8 * -math.log10(max(kept, 1e-4) / 0.4), 5.0), where=worst.name), view.fails(2.0, 4.0)]
    return Finding(tuple(found), tuple(x.name for x in heavy), 0, f"{worst.name} drops {_p(worst):.0%} of the signal.")


@cause(
    "insufficient_capacity",
    "Too few units, or a bottleneck, for the task.",
    explains="plateau not_learning",
    chain=("a layer has too few units for what must pass through it", "gradients and updates are healthy", "the loss settles at a high floor"),
    repair="Widen the narrowest hidden layer.",
    experiment="widen",
    rivals={"missing_nonlinearity": "there a non-linearity is missing"},
)
def insufficient_capacity(view: View) -> Finding | None:
    hidden = [x for x in view.layers[:-1] if isinstance(x.config.get("out_features"), int)]
    if not hidden:
        return None
    narrow = min(hidden, key=lambda x: int(x.config["out_features"] or 0))
    width = int(narrow.config["out_features"] or 0)
    given = int(narrow.config.get("in_features") or 0)
    if width > NARROW or width >= given + 2:
        return None
    flat = _flat_end(view)
    found = [
        evidence(f"{narrow.name} has only {width} units for {given} inputs", 4.5 - 0.7 * width, where=narrow.name),
        evidence("the loss is flat over the last part of the run" if flat else "the loss still falls", 1.5 if flat else -1.5),
        view.fails(2.0, 2.5),
    ]
    return Finding(tuple(found), (narrow.name,), None, f"{narrow.name} with {width} units is too narrow.")


def _flat_end(view: View) -> bool:
    values = view.path.series.finite().values
    if len(values) < 20:
        return False
    half, tail = values[len(values) // 2 : 3 * len(values) // 4], values[-len(values) // 8 :]
    return bool(abs(np.median(half) - np.median(tail)) < 0.03 * abs(np.median(half)) + 2 * view.path.noise)


@cause(
    "unstable_attention",
    "Attention logits grow until the softmax collapses to single entries.",
    explains="not_learning diverged nonfinite vanishing huge_updates",
    chain=("queries and keys grow", "attention logits reach hundreds and the softmax becomes one-hot", "its gradient vanishes and the loss spikes or stalls"),
    repair="Normalise queries and keys (QK layer norm), or scale the logits by 1/sqrt(d).",
    experiment="normalise q and k, or scale logits",
    references=("Dehghani et al., Scaling ViT to 22B, 2023", "Zhai et al., entropy collapse, 2023"),
)
def unstable_attention(view: View) -> Finding | None:
    pairs = _query_key(view)
    if not pairs:
        return None
    grown = [(name, _product(view, q, k, last=False), _product(view, q, k, last=True)) for name, q, k in pairs]
    grown = [g for g in grown if math.isfinite(g[2])]
    if not grown:
        return None
    name, start, peak = max(grown, key=lambda g: g[2])
    weight = float(np.clip(2.0 * math.log10(max(peak, 1e-9) / 20.0), -3.0, 4.0))
    found = [
        evidence(f"query times key scale at {name} goes from {start:.3g} to {peak:.3g} (logits of that size make the softmax one-hot)", weight, where=name),
        view.fails(2.5, 4.0),
    ]
    return Finding(tuple(found), (name,), 0, f"The attention logits of {name} grow to about {peak:.3g}.")


def _query_key(view: View) -> list[tuple[str, str, str]]:
    """(attention module, query projection, key projection) by the usual names."""
    names = {x.name for x in view.facts.modules}
    out = []
    for query, key in (("q", "k"), ("to_q", "to_k"), ("q_proj", "k_proj"), ("query", "key"), ("wq", "wk"), ("W_q", "W_k"), ("q_norm", "k_norm")):
        for name in names:
            parent, _, last = name.rpartition(".")
            other = f"{parent}.{key}" if parent else key
            if last == query and other in names:
                out.append((parent, name, other))
    normed = {p for p, q, _ in out if q.endswith("q_norm")}
    return [x for x in out if x[0] not in normed or x[1].endswith("q_norm")]


def _product(view: View, query: str, key: str, *, last: bool) -> float:
    def scale(name: str) -> float:
        values = view.module(name, m.ACT_RMS).finite().values
        if not len(values):
            return float("nan")
        return float(np.median(values[-20:])) if last else float(values[0])

    width = next((x.config.get("out_features") for x in view.facts.modules if x.name == query), 64)
    heads = 4.0
    per_head = float(width or 64) / heads if isinstance(width, int) else 16.0
    return scale(query) * scale(key) * math.sqrt(per_head)
