"""Faults where the last activation meets the loss."""

from __future__ import annotations

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import BINARY, REGRESSION, Kind, LossFact, ModuleFact, TensorFact
from neuraldbg.core.raised import raised
from neuraldbg.core.view import View

RECTIFIERS = frozenset({"Relu", "ReLU", "ReLU6", "Softplus", "Hardtanh"})


MOST_CODES = 30  # counts and ratings that are learnt as quantities seldom lack no number
LOGITS = "Use BCEWithLogitsLoss, or a sigmoid after the last layer."
EDGED = frozenset({"Tanh", "Sigmoid"})  # activations that reach 1 and no more
LAYERS = frozenset({"Addmm", "Mm", "Bmm", "Convolution", "NativeLayerNorm", "NativeBatchNorm"})
EDGE = 0.01  # predictions that are nearer to 1 on average are at the edge


def last_activation(view: View) -> str | None:
    """What made the prediction: `Softmax`, `Sigmoid`, `Relu`... or None."""
    fact = view.loss
    if fact is None:
        return None
    if fact.last_op and fact.last_op != "CompiledFunction":
        return fact.last_op
    module = last_module(view)
    return module.kind if module is not None else None


def last_module(view: View) -> ModuleFact | None:
    """The leaf module that ran last."""
    leaves = [x for x in view.record.called() if x.leaf]
    return leaves[-1] if leaves else None


@cause(
    "output_activation_mismatch",
    "The last activation and the loss do not belong together.",
    explains="not_learning vanishing dead zero_gradient",
    chain=(
        "the loss expects another kind of number than the last activation gives",
        "the range of the prediction is cut or squashed twice",
        "the gradient is weak or zero, and the target cannot be reached",
    ),
    repair="Remove the last activation, or use the loss that expects it.",
    experiment="identity in its place",
    rivals={"wrong_loss": "there the activation is sound and the loss is not"},
    references=("PyTorch documentation of CrossEntropyLoss and BCEWithLogitsLoss",),
    yields_to="bad_bias_init wrong_loss",
)
def _output_activation_mismatch(view: View) -> Finding | None:
    no_sigmoid = raised(
        view,
        "all elements of input should be between 0 and 1",
        "the binary cross-entropy was given numbers that are no probabilities",
    )
    if no_sigmoid is not None:
        places = () if (made := last_module(view)) is None else (made.name,)
        text = "No sigmoid stands before the binary cross-entropy, which expects probabilities."
        return Finding((no_sigmoid,), places, no_sigmoid.step, text, LOGITS)
    fact = view.loss
    if fact is None:
        return None
    found = _double(view, fact) + (_cut(view, fact) or _at_the_edge(view, fact))
    if not found:
        return None
    found.append(view.fails(1.0, 1.0))
    last = last_module(view)
    where: tuple[str, ...] = (last.name,) if last is not None else ()
    rectified = [x.name for x in view.record.called() if x.kind == last_activation(view)]
    told = tuple(e.where for e in found if e.where is not None and e.where != "loss")
    where = told or tuple(rectified[-1:]) or where
    return Finding(tuple(found), where, 0, found[0].text[0].upper() + found[0].text[1:] + ".")


def _double(view: View, fact: LossFact) -> list[Evidence]:
    """A squashing activation in front of a loss that squashes itself."""
    last = (last_activation(view) or "").lower()
    seen = fact.prediction
    if last == "softmax" and seen is not None and seen.low == seen.high == 1.0:
        return [evidence("a softmax over one output is one, whatever the model computes", 8.0)]
    if fact.kind == "cross_entropy" and fact.prediction is not None:
        if last in ("softmax", "logsoftmax"):
            strength = 6.0 if last == "softmax" else 2.0
            return [
                evidence(
                    f"{last} is applied before a cross-entropy that applies it again", strength
                )
            ]
        if seen is not None and seen.sums_to_one:
            return [
                evidence(
                    "the input of the cross-entropy already sums to one: it is a softmax's output",
                    5.5,
                )
            ]
        if last in ("relu", "sigmoid", "tanh"):
            return [evidence(f"{last} cuts the logits before the cross-entropy", 3.5)]
    top = seen.high if seen is not None and seen.high is not None else 0.0
    if fact.kind == "nll" and top > 1e-6 and last != "logsoftmax":
        text = f"the negative log-likelihood expects log-probabilities, but its input reaches {top:.3g}"
        return [evidence(text, 6.0)]
    if fact.kind == "bce_with_logits":
        bounded = (
            seen is not None
            and seen.low is not None
            and seen.high is not None
            and seen.low >= 0
            and seen.high <= 1
        )
        if last in ("sigmoid", "softmax"):
            return [evidence(f"{last} is applied before a loss that applies a sigmoid itself", 6.0)]
        if last in ("relu",):
            return [evidence("ReLU cuts the logits: no probability under 0.5 can be said", 4.5)]
        if bounded and last not in ("addmm", "mm", "convolution"):
            return [evidence("the logits lie in [0, 1], as after a sigmoid", 2.5)]
    return []


def _at_the_edge(view: View, fact: LossFact) -> list[Evidence]:
    """Predictions that all end at the largest number that the last activation can give.

    So they do where targets lie beyond it, also if the loss hides the targets. The other edge
    of a sigmoid is no sign: of what is rare it rightly says next to nothing.
    """
    ops = [op for op in fact.ops if op in EDGED or op in LAYERS]
    mean, spread = (
        view.record.series(Kind.LOSS, "prediction", x).finite().values
        for x in (m.L_PRED_MEAN, m.L_PRED_STD)
    )
    alone = len(view.facts.losses) == 1 and fact.kind in (*REGRESSION, "custom")
    if not alone or not ops or ops[0] not in EDGED or len(mean) < 5 or len(spread) < 5:
        return []
    if abs(mean[-1]) < 1 - EDGE or spread[-1] > EDGE or spread[0] < EDGE:
        return []
    name = ops[0].lower()
    text = f"{name} makes the prediction, and all of it ends at {mean[-1]:.4f}: its edge"
    return [evidence(text, 5.0)]


def _cut(view: View, fact: LossFact) -> list[Evidence]:
    """A bounded output for targets outside its bounds."""
    low = view.batch("target", m.B_LOW).finite()
    high = view.batch("target", m.B_HIGH).finite()
    last = last_activation(view) or ""
    ran = _last_kinds(view)
    floor = float(low.values.min()) if len(low) else float("nan")
    top = float(high.values.max()) if len(high) else float("nan")
    if last in RECTIFIERS or (ran and ran[-1] in RECTIFIERS and last in ("", "CompiledFunction")):
        if floor < 0:
            return [
                evidence(
                    f"{last or ran[-1]} makes the prediction, so it cannot be negative, but targets go down to {floor:.3g}",
                    5.5,
                )
            ]
        if fact.kind in REGRESSION and _dead_output(view):
            return [evidence("ReLU makes the prediction and most of it is zero", 3.0)]
    if fact.kind in REGRESSION and last in ("Sigmoid", "Softmax", "Tanh"):
        bottom = -1.0 if last == "Tanh" else 0.0
        if top > 1.2 or floor < bottom - 0.2:
            return [
                evidence(
                    f"{last} bounds the prediction, but targets range from {floor:.3g} to {top:.3g}",
                    5.0,
                )
            ]
    return _inner_cut(view)


def _last_kinds(view: View) -> list[str]:
    return [x.kind for x in view.record.called() if x.leaf][-3:]


def _dead_output(view: View) -> bool:
    last = last_module(view)
    return last is not None and view.usual(view.module(last.name, m.ACT_ZERO)) > 0.8


def _inner_cut(view: View) -> list[Evidence]:
    """A rectifier at the end of one of several heads: nothing of that branch runs after it."""
    tails = [x for x in view.record.called() if x.kind in ("ReLU", "ReLU6") and _is_tail(view, x)]
    for x in tails:
        zero = view.usual(view.module(x.name, m.ACT_ZERO))
        if 0.3 < zero < 1.0:
            return [
                evidence(
                    f"{x.name} is a ReLU at the very end of a head: {zero:.0%} of its output is cut to zero and gets no gradient",
                    4.0,
                    where=x.name,
                )
            ]
    return []


def _is_tail(view: View, module: ModuleFact) -> bool:
    """The last child of a sequence with layers before it and no layer after it in the graph."""
    parent, _, own = module.name.rpartition(".")
    siblings = [
        x for x in view.facts.modules if x.name.rpartition(".")[0] == parent and x.name != parent
    ]
    if not own.isdigit() or not siblings or siblings[-1].name != module.name or len(siblings) < 3:
        return False
    leaves = [x.name for x in view.record.called() if x.leaf]
    after = leaves[leaves.index(module.name) + 1 :]
    if after and not view.params_of(after[0]):
        return False  # a dropout, a pooling, a flattening takes what was just made
    given = view.usual(view.module(module.name, m.ACT_RMS), 5)
    for layer in view.layers:
        taken = view.usual(view.module(layer.name, m.IN_RMS), 5)
        if (
            layer.order is not None
            and module.order is not None
            and layer.order > module.order
            and not (given > 0 and abs(taken / given - 1) >= 0.5)
        ):
            return False
    return bool(view.layers) and parent != ""


def _codes(target: TensorFact) -> bool:
    """Whether targets run through 0 (or 1) to some number without a gap, as codes do."""
    if not target.integral or target.low is None or target.high is None:
        return False
    count = target.distinct or 0
    return (
        3 <= count <= MOST_CODES and target.low in (0, 1) and target.high - target.low == count - 1
    )


def _many_scores(fact: LossFact) -> bool:
    """Whether each of several scores of a sample is compared with one and the same integer."""
    made, target = fact.prediction, fact.target
    if made is None or target is None or not target.integral or target.distinct is None:
        return False
    rows = made.shape[0] if made.shape else 1
    return (
        len(made.shape) >= 2
        and made.shape[-1] >= 2
        and 3 <= target.distinct <= min(200, rows * 2)
        and (target.low or 0) >= 0
        and (target.high or 0) < 2 * made.shape[-1]
    )


@cause(
    "wrong_loss",
    "The loss does not fit the task.",
    explains="not_learning",
    chain=(
        "the loss measures something else than the task needs",
        "its gradient is weak or points elsewhere",
        "the model settles at a useless answer",
    ),
    repair="Use the loss of the task: cross-entropy for classes, MSE or L1 for quantities.",
    experiment="the fitting loss",
    rivals={
        "output_activation_mismatch": "there the loss fits the task and the activation does not fit the loss"
    },
)
def _wrong_loss(view: View) -> Finding | None:
    fact = view.loss
    if fact is None:
        return None
    if fact.kind == "cross_entropy" and fact.prediction and fact.prediction.shape[1:2] == (1,):
        text = "a cross-entropy over one class is zero whatever the model says"
        return Finding((evidence(text, 8.0, step=0),), (), 0, text[0].upper() + text[1:] + ".")
    several = _unbounded(view, fact) or _several_yes(view)
    if several is not None:
        return several
    if fact.kind not in REGRESSION or fact.target is None:
        return None
    target, found = fact.target, []
    one_hot = (
        target.integral
        and target.distinct == 2
        and target.low == 0
        and target.high == 1
        and target.sums_to_one
    )
    if one_hot and last_activation(view) == "Softmax":
        found.append(
            evidence(
                "a squared error compares softmax probabilities with one-hot classes: its gradient vanishes where it is wrong",
                5.0,
            )
        )
    elif (
        target.integral
        and target.distinct is not None
        and 3 <= target.distinct <= 200
        and "int" in str(target.dtype)
    ):
        found.append(evidence(f"a squared error is taken on {target.distinct} class indices", 4.0))
    elif one_hot:
        found.append(evidence("a squared error is taken on one-hot classes", 2.5))
    elif _many_scores(fact):
        text = f"a {fact.kind} compares several scores with the same one of {target.distinct} whole numbers: class indices"
        found.append(evidence(text, 4.0))
    elif _codes(target):
        text = f"the targets are the whole numbers {target.low:.0f} to {target.high:.0f}, each of them: codes of classes more likely than quantities"
        found.append(evidence(text, 3.5))
    if not found:
        return None
    told = _many_scores(fact) or _codes(target)
    found.append(view.fails(2.0, 2.0 if told else 3.0))
    return Finding(tuple(found), (), 0, f"A {fact.kind} loss is used for classes.")


def _several_yes(view: View) -> Finding | None:
    """A softmax, which shares one among the classes, where a sample is of several or of none."""
    ones = next((f.ones for f in view.facts.losses if f.ones is not None), None)
    if ones is None or ones[1] < 2 or ones[0] == ones[1]:
        return None
    text = (
        f"the cross-entropy is given {ones[0]} to {ones[1]} ones for a sample: its softmax lets the "
        "classes compete, and samples without a one teach it nothing"
    )
    # Purchases are modelled by one softmax on purpose, and no buyer bought nothing.
    found = (evidence(text, 5.0 if ones[0] == 0 else 2.5, where="target"), view.fails(1.5, 1.0))
    told = f"A cross-entropy of one softmax is taken on samples with {ones[0]} to {ones[1]} labels each."
    repair = "Use BCEWithLogitsLoss, which asks for each class on its own."
    return Finding(found, ("target",), 0, told, repair)


def _unbounded(view: View, fact: LossFact) -> Finding | None:
    """Targets of a binary cross-entropy that are no probabilities, and are not masked either."""
    target = fact.target
    if fact.kind not in BINARY or target is None or target.low is None or target.high is None:
        return None
    if (target.low >= 0 and target.high <= 1) or not view.path.last < 0:
        return None
    text = (
        f"the targets go from {target.low:.3g} to {target.high:.3g}: outside 0 and 1, a binary "
        "cross-entropy has no lower bound, and it is below zero"
    )
    told = f"A binary cross-entropy is taken on targets from {target.low:.3g} to {target.high:.3g}."
    return Finding((evidence(text, 8.0, where="target", step=0),), ("target",), 0, told)
