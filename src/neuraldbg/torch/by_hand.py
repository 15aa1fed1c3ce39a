"""Losses written out by hand: which one it is, and what the target was."""

from __future__ import annotations

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


class ByHand(NamedTuple):
    """A loss that was recognised.

    Attributes:
        kind: As `LossFact.kind`.
        target: What it compares with, where that can be had.
        made: What made the prediction.
        weighted: Whether samples are weighed unequally.
    """

    kind: str
    target: Tensor | None
    made: Node | None
    weighted: bool = False


def by_hand(root: Node, prediction: Tensor | None) -> ByHand | None:
    """Recognise a squared or absolute error, or a cross-entropy, in the graph of a loss.

    Args:
        root: The autograd node of the loss.
        prediction: The model's output, from which the target of a difference follows.
    """
    node = _told(root)
    if node is None:
        return _weighed(root, prediction)
    straight = _difference(node, prediction)
    if straight is not None:
        return straight
    return _chosen(node) or _weighed(root, prediction)


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


def _weighed(root: Node, prediction: Tensor | None) -> ByHand | None:
    """The target of a difference that is masked, weighed, chosen from or one of several terms.

    What the loss is at chance cannot be told of such a one, so that its kind stays open.
    """
    queue, seen = deque([root]), {root}
    while queue and len(seen) < BRANCHES:
        node = queue.popleft()
        found = _difference(node, prediction)
        if found is not None and found.target is not None:
            return found._replace(kind="custom")
        if label(node) in WEIGHED:
            fresh = [n for n in feeding(node) if n not in seen]
            seen.update(fresh)
            queue.extend(fresh)
    return None


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
