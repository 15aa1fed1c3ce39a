"""What the loss is made of, read off the autograd graph without the user's help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torch import Tensor

from neuraldbg.core.facts import LossFact, LossPart, TensorFact
from neuraldbg.torch.by_hand import ByHand, by_hand
from neuraldbg.torch.data import tensor_fact
from neuraldbg.torch.direction import is_maximised
from neuraldbg.torch.nodes import FUSED, Node, constants, feeding, label, names, saved, shape, walk
from neuraldbg.torch.parts import parts_of

NODES: Final = 64  # autograd nodes read from the loss inwards
SCALARS: Final = 8  # of these, how many may only scale and add up the loss
GRAPH: Final = 200_000  # autograd nodes walked to find the parameters

REDUCTION: Final = {0: "none", 1: "mean", 2: "sum"}
# Nodes between the loss and the operation that made the prediction.
# Operations that compare two tensors entry by entry, and expand them to one shape before.
COMPARING: Final = frozenset(
    {"MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "Sub", "Mul", "Div"}
)
RESHAPING: Final = frozenset(
    (
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Flatten", "Squeeze", "Unsqueeze"),
        *("Transpose", "Permute", "T", "Expand", "Slice", "Select", "Index", "Gather"),
        *("Clone", "ToCopy", "Alias", "Cat", "Stack", "Unbind", "Split", "Chunk"),
    )
)


def leaves(root: Node) -> list[Tensor]:
    """The tensors that will accumulate a gradient: what the loss can reach."""
    return [n.variable for n in walk(root, GRAPH) if hasattr(n, "variable")]


def read_loss(
    loss: Tensor, index: int, prediction: TensorFact | None, output: Tensor | None = None
) -> LossFact:
    """Everything that can be said about a loss before its backward pass.

    Args:
        loss: The tensor that backward starts from.
        index: Which optimizer it belongs to.
        prediction: The model's output as last seen, if it was.
        output: That output itself, if it still exists.
    """
    root = loss.grad_fn
    if root is None:
        return LossFact(index=index, kind="constant", prediction=prediction)
    nodes = list(walk(root, NODES))
    core = _core(nodes)
    written = by_hand(loss, output) if core is None else None
    target = _target(core, written)
    whole = None if written is None else _whole(written)
    return LossFact(
        index=index,
        ops=tuple(label(n) for n in nodes),
        kind=_kind(nodes, core) if written is None else written.kind,
        reduction=_reduction(nodes, core) if whole is None else "mean",
        prediction=prediction or _saved_prediction(core),
        target=None if target is None else tensor_fact(target),
        broadcast=_broadcast(nodes),
        last_op=_last_op(core if written is None else written.made, made=written is not None),
        parts=parts_of(root) if whole is None else (whole,),
        batch=_batch(_asked(core, target, whole), prediction),
        weighted=_weighted(core) if core is not None else written is not None and written.weighted,
        ones=next((x for x in map(_ones, nodes) if x is not None), None),
        maximised=is_maximised(root),
    )


def _whole(written: ByHand) -> LossPart | None:
    """The one term of a loss whose value has told what it is; None if it has not."""
    if written.scale is None or written.target is None:
        return None
    return LossPart(written.kind, "mean", written.scale, written.target.numel())


def _asked(core: Node | None, target: Tensor | None, whole: LossPart | None) -> Tensor | None:
    """The targets with those that are left out, which the batch counts too."""
    if core is not None:
        return saved(core, "target")
    return target if whole is None else None


def _weighted(core: Node) -> bool:
    """Whether a fused loss weighs classes or samples by anything but one."""
    weights = (saved(core, "weight"), saved(core, "pos_weight"))
    return any(w is not None and not bool((w == 1).all()) for w in weights)


def _ones(node: Node) -> tuple[int, int] | None:
    """The fewest and the most ones in a row of zeros and ones that weigh a log-softmax."""
    if label(node) != "Mul" or [label(n) for n in feeding(node)] != ["LogSoftmax"]:
        return None
    weights = next((t.detach() for t in constants(node) if t.dim() == 2), None)
    if weights is None or not bool(((weights == 0) | (weights == 1)).all()):
        return None
    rows = weights.sum(1)
    return int(rows.min()), int(rows.max())


def target_of(loss: Tensor, output: Tensor | None = None) -> Tensor | None:
    """The target tensor, where the loss function kept it or the model's output tells it.

    Labels that the loss leaves out (padding) are left out here as well.
    """
    if loss.grad_fn is None:
        return None
    core = _core(walk(loss.grad_fn, NODES))
    return _target(core, by_hand(loss, output) if core is None else None)


def _core(nodes: Iterable[Node]) -> Node | None:
    """The first operation that is a loss by itself."""
    return next((n for n in nodes if label(n) in FUSED), None)


def _target(core: Node | None, written: ByHand | None) -> Tensor | None:
    if core is not None:
        return _counted(core, saved(core, "target"))
    return None if written is None else written.target


def _counted(core: Node, target: Tensor | None) -> Tensor | None:
    """The labels that a loss counts; all of them if it would count none."""
    ignored = getattr(core, "_saved_ignore_index", None)
    if target is None or ignored is None or not bool((target == ignored).any()):
        return target
    left = target[target != ignored]
    return left if left.numel() else target


def _kind(nodes: list[Node], core: Node | None) -> str:
    if core is None:
        # A compiled model makes more than one number; a compiled loss may be divided after.
        whole = (n for n in nodes[:SCALARS] if label(n) == "CompiledFunction")
        if any(shape(n) in ((), (1,)) for n in whole):
            return "compiled"
        return "custom"
    kind = FUSED[label(core)]
    above = [name for name in names(core, 8)[1:] if name not in RESHAPING]
    return "cross_entropy" if kind == "nll" and above[:1] == ["LogSoftmax"] else kind


def _reduction(nodes: list[Node], core: Node | None) -> str | None:
    if core is not None:
        code = getattr(core, "_saved_reduction", None)
        if code in (1, 2):
            return REDUCTION[code]
    for node in nodes[:SCALARS]:
        if label(node) in ("Mean", "Sum"):
            return label(node).lower()
    return None


def _saved_prediction(core: Node | None) -> TensorFact | None:
    value = None if core is None else saved(core, "self")
    return None if value is None else tensor_fact(value)


def _last_op(core: Node | None, *, made: bool) -> str | None:
    """The operation that made what the loss receives.

    Args:
        core: The fused loss, or (`made`) the first node of the prediction itself.
        made: Which of the two.
    """
    if core is None:
        return None
    node = core
    if made and label(node) not in (*RESHAPING, "LogSoftmax"):
        return label(node)
    for _ in range(12):
        inner = [n for n, _ in node.next_functions if n is not None]
        if not inner:
            return None
        node = inner[0]
        if label(node) == "LogSoftmax" and (made or label(core).startswith("NllLoss")):
            continue
        if label(node) not in RESHAPING:
            return label(node)
    return None


def _batch(target: Tensor | None, prediction: TensorFact | None) -> int | None:
    if target is not None and target.dim():
        return int(target.shape[0])
    return prediction.shape[0] if prediction is not None and prediction.shape else None


def _broadcast(nodes: list[Node]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two shapes that grew into a third at the loss: `(N, 1)` against `(N,)`.

    Adding a bias or a scale broadcasts too, but never compares every sample with every other.
    """
    for node in nodes[:24]:
        if label(node) not in COMPARING:
            continue
        operands = [_before_growth(n, i) for n, i in node.next_functions if n is not None]
        if _on_purpose(operands):
            continue
        for one, grown in operands:
            whole = grown or shape(node)
            other = _squared(one, whole) if one and whole else None
            # A square divided by its own sums is none that two columns made.
            if one and other and all(x in (one, other) for x, _ in operands):
                return one, other
    return None


Shape = tuple[int, ...] | None


def _before_growth(node: Node, output: int) -> tuple[Shape, Shape]:
    """An operand's shape before it was expanded, and after (None if it was not)."""
    if label(node) != "Expand":
        return shape(node, output), None
    inner = next(((n, i) for n, i in node.next_functions if n is not None), None)
    if inner is None:
        return None, None
    # A dimension that was put in by hand in front of maps is there to be expanded.
    meant = label(inner[0]) == "Unsqueeze" and len(shape(node) or ()) > 2
    return (None if meant else shape(*inner)), shape(node)


def _on_purpose(operands: list[tuple[Shape, Shape]]) -> bool:
    """Whether two operands of as many dimensions were lined up to be compared pairwise."""
    return len(operands) == 2 and all(x is not None and 1 in x[:2] for x, _ in operands)


def _squared(given: tuple[int, ...], grown: tuple[int, ...]) -> tuple[int, ...] | None:
    """The other operand's shape, if each of N samples was lined up with each of N others."""
    n = grown[0]
    if len(grown) < 2 or n < 2 or grown[1] != n:
        return None
    if given == (n, 1, *grown[2:]):
        return grown[1:]
    return (n, 1, *grown[2:]) if given == grown[1:] else None
