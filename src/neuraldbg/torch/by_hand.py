"""Losses written out by hand: which one it is, and what the target was."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import torch
from torch import Tensor

from neuraldbg.torch.nodes import Node, constants, difference, feeding, label, saved, shape

# What may stand between the loss and the operation that tells its kind.
PASSED: Final = frozenset(
    (
        *("Mean", "Sum", "Neg", "Div", "View", "UnsafeView", "Reshape", "ReshapeAlias"),
        *("Squeeze", "Unsqueeze", "Flatten", "Clone", "ToCopy", "Add"),
    )
)
# What gives log-probabilities: of one softmax, or of a mixture of several.
LOGARITHMS: Final = frozenset({"LogSoftmax", "Logsumexp"})
DEPTH: Final = 10
# What may also stand there if only the target is wanted: weights, masks, choices, further terms.
WEIGHED: Final = PASSED | {"Where", "Mul", "MaskedFill"}
UNEVEN: Final = 1e-2  # probabilities in half precision add up to one within this
# Roundings of the prediction up to which what is left of the difference is no target.
LOST: Final = 16
COARSE: Final = 1e-3  # roundings below this swallow no usual target
BRANCHES: Final = 24  # operations searched for a difference
MEANS: Final = frozenset({"mse", "l1"})  # kinds whose value follows from the difference
SAME: Final = 1e-3  # relative difference of a mean computed again, in float32 at worst


class ByHand(NamedTuple):
    """A loss that was recognised.

    Attributes:
        kind: As `LossFact.kind`.
        target: What it compares with, where that can be had.
        made: What made the prediction.
        weighted: Whether samples are weighed unequally.
        scale: What the mean of it is multiplied by, where that was told by the loss's value.
    """

    kind: str
    target: Tensor | None
    made: Node | None
    weighted: bool = False
    scale: float | None = None


def by_hand(loss: Tensor, prediction: Tensor | None) -> ByHand | None:
    """Recognise a squared or absolute error, or a cross-entropy, in the graph of a loss.

    Args:
        loss: The loss, with its graph.
        prediction: The model's output, from which the target of a difference follows.
    """
    root = loss.grad_fn
    if root is None:
        return None
    node = _told(root)
    if node is None:
        return _weighed(loss, prediction)
    straight = _difference(node, prediction)
    if straight is not None:
        return straight
    return _chosen(node) or _weighed(loss, prediction)


def _chosen(node: Node) -> ByHand | None:
    """A cross-entropy, each sample of which may be weighed by a number of its own."""
    inner = feeding(node)
    if label(node) == "Mul" and len(inner) == 1 and len(shape(node) or ()) == 1:
        weights = next((t for t in constants(node) if t.dim() == 1), None)
        below = _told(inner[0])
        if weights is not None and below is not None:
            found = _cross_entropy(below, label(below), feeding(below))
            even = bool((weights == weights[0]).all())
            return None if found is None else found._replace(weighted=not even)
    return _cross_entropy(node, label(node), inner)


def _difference(node: Node, prediction: Tensor | None) -> ByHand | None:
    """A squared or absolute difference, if that is what the operation makes."""
    found = difference(node)
    if found is None:
        return None
    kind, gap = found
    return ByHand(kind, _subtracted(node, gap, prediction), _first(gap))


def _weighed(loss: Tensor, prediction: Tensor | None) -> ByHand | None:
    """The target of a difference that is masked, weighed, chosen from or one of several terms.

    What the loss is at chance cannot be told of such a one, so that its kind stays open, unless
    its value is that of a mean over what a mask leaves.
    """
    queue, seen, masks = deque([loss.grad_fn]), {loss.grad_fn}, list[Tensor]()
    while queue and len(seen) < BRANCHES:
        node = queue.popleft()
        found = _difference(node, prediction)
        if found is not None and found.target is not None:
            return _masked(loss, found, node, masks) or found._replace(kind="custom")
        if label(node) in WEIGHED:
            masks += constants(node) if label(node) == "Mul" else []
            fresh = [n for n in feeding(node) if n not in seen]
            seen.update(fresh)
            queue.extend(fresh)
    return None


def _masked(loss: Tensor, found: ByHand, node: Node, masks: list[Tensor]) -> ByHand | None:
    """A mean error over the entries that a mask of zeros and ones leaves, told by its value.

    It may be divided by the number of these entries, or of all.

    Args:
        loss: The loss.
        found: The error before anything was left out.
        node: What made that error.
        masks: What it may be multiplied by afterwards.
    """
    gap, target = saved(node, "self"), found.target
    mask = next((x for x in masks if gap is not None and _lies_over(x, gap)), None)
    if mask is None or gap is None or target is None or found.kind not in MEANS:
        return None
    size = gap.detach().square() if found.kind == "mse" else gap.detach().abs()
    keep = mask.reshape(mask.shape[: _told_by(mask, gap)]) > 0
    if not bool(keep.any()):
        return None
    times = float(loss.detach().double() / size[keep].double().mean())
    shares = (1.0, float(keep.double().mean()))
    scale = next((x for x in shares if math.isclose(times, x, rel_tol=SAME)), None)
    left = target.reshape(gap.shape)[keep]
    return None if scale is None else found._replace(target=left, scale=scale)


def _told_by(mask: Tensor, gap: Tensor) -> int:
    """How many leading dimensions of an error a mask tells apart."""
    return max((i + 1 for i in range(mask.dim()) if mask.shape[i] == gap.shape[i]), default=0)


def _lies_over(mask: Tensor, gap: Tensor) -> bool:
    """Whether these are zeros and ones for the entries of an error, or for groups of them."""
    if not 0 < mask.dim() <= gap.dim() or mask.numel() < 2:
        return False
    told = _told_by(mask, gap)
    fits = mask.shape[:told] == gap.shape[:told] and all(x == 1 for x in mask.shape[told:])
    return fits and bool(((mask == 0) | (mask == 1)).all())


def _told(root: Node) -> Node | None:
    """The first node from the loss inwards that does more than reduce, scale or reshape."""
    node = root
    for _ in range(DEPTH):
        inner = feeding(node)
        scaled = label(node) == "Mul" and shape(node) == () and len(inner) == 1
        if label(node) not in PASSED and not scaled:
            return node
        node = inner[0] if inner else None
        if node is None:
            return None
    return None


def _subtracted(node: Node, gap: Node, prediction: Tensor | None) -> Tensor | None:
    """What was subtracted from the prediction, or the prediction from it."""
    size = saved(node, "self")
    if size is None or prediction is None or size.numel() != prediction.numel():
        return None
    made = prediction.detach().reshape(size.shape)
    if not bool(made.isfinite().all()):
        return None  # what is left of it says nothing of the target
    first = gap.next_functions[0][0] is not None and label(gap) == "Sub"
    target: Tensor = made - size.detach() if first else made + size.detach()
    rounding = torch.finfo(made.dtype).eps * made.abs().max()
    # A diverging prediction swallows what it is compared with.
    lost = bool(rounding > COARSE) and bool(target.abs().max() <= LOST * rounding)
    return None if lost else target


def _cross_entropy(node: Node, name: str, inner: list[Node]) -> ByHand | None:
    if len(inner) != 1 or _under(inner[0]) not in LOGARITHMS:
        return None
    if name == "Mul":
        weights = next((t for t in constants(node) if t.dim() >= 2), None)
        if weights is not None and not _probabilities(weights):
            return None  # counts of words, say: how many there are sets the scale
        labels = None if weights is None else weights.argmax(-1)
        return ByHand("cross_entropy", labels, _first(inner[0]))
    if name == "Gather":
        index = saved(node, "index")
        labels = None if index is None else index.reshape(-1)
        return ByHand("cross_entropy", labels, _first(inner[0]))
    if name == "Index":
        chosen = getattr(node, "_saved_indices", None) or ()
        last = chosen[-1] if chosen else None
        labels = last if isinstance(last, Tensor) else None
        return ByHand("cross_entropy", labels, _first(inner[0]))
    return None


def _probabilities(weights: Tensor) -> bool:
    """Whether the entries for each sample add up to one, or to none where it is left out."""
    totals = weights.detach().float().sum(-1)
    return bool(((totals - 1).abs().minimum(totals.abs()) < UNEVEN).all())


def _first(node: Node) -> Node | None:
    """What an operation received."""
    return next(iter(feeding(node)), None)


def _under(node: Node) -> str:
    """The name of an operation, or of what it merely reshapes."""
    while label(node) in PASSED and label(node) not in ("Mean", "Sum", "Add"):
        inner = feeding(node)
        if not inner:
            break
        node = inner[0]
    return label(node)
