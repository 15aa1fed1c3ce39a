"""Reading nodes of the autograd graph."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from torch import Tensor

# Autograd node -> kind of loss, for losses that torch computes in one operation.
FUSED: Final = {
    "NllLoss": "nll",
    "NllLoss2D": "nll",
    "NllLossNd": "nll",
    "BinaryCrossEntropy": "bce",
    "BinaryCrossEntropyWithLogits": "bce_with_logits",
    "MseLoss": "mse",
    "L1Loss": "l1",
    "SmoothL1Loss": "smooth_l1",
    "HuberLoss": "smooth_l1",
    "CtcLoss": "ctc",
    "MultiMarginLoss": "margin",
    "MultilabelMarginLoss": "margin",
    "SoftMarginLoss": "margin",
}

Node = Any


def label(node: Node) -> str:
    """The operation's name: `AddmmBackward0` -> `Addmm`."""
    return _label(node.name())


@functools.cache
def _label(name: str) -> str:
    name = name.rpartition("::")[2]
    return name.partition("Backward")[0] or name


def feeding(node: Node) -> list[Node]:
    """The operations that feed one, in the order of its operands."""
    return [n for n, _ in node.next_functions if n is not None]


def walk(root: Node, limit: int) -> Iterator[Node]:
    """Autograd nodes from `root` inwards, breadth first."""
    queue, seen = deque([root]), {root}
    while queue and limit > 0:
        node = queue.popleft()
        limit -= 1
        yield node
        for nearer in feeding(node):
            if nearer not in seen:
                seen.add(nearer)
                queue.append(nearer)


def names(node: Node | None, length: int) -> list[str]:
    """Names of an operation and of those that feed its first input, from the outside."""
    found: list[str] = []
    while node is not None and len(found) < length:
        found.append(label(node))
        node = next(iter(feeding(node)), None)
    return found


def saved(node: Node, name: str) -> Tensor | None:
    """A tensor that a node saved for backward, or None if it is gone or packed away.

    What hooks have packed is left alone: unpacking runs a checkpointed model again.
    """
    try:
        packed = getattr(node, f"_raw_saved_{name}", None)
        if getattr(packed, "unpack_hook", None) is not None:
            return None
        value = getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None
    return value if isinstance(value, Tensor) else None


def constants(node: Node) -> list[Tensor]:
    """What a product or a quotient saved of those of its operands that want no gradient."""
    known = (saved(node, "self"), saved(node, "other"))
    return [t for t in known if t is not None and not t.requires_grad]


def difference(node: Node) -> tuple[str, Node] | None:
    """Of an operation that squares a difference or takes its size: its kind, and the difference.

    The kind is that of a loss which is the mean of it; `custom` for a norm, of which none is.
    """
    name, inner = label(node), feeding(node)
    if not inner or label(inner[0]) not in ("Sub", "Rsub"):
        return None
    if name in ("Abs", "LinalgVectorNorm"):
        return "l1" if name == "Abs" else "custom", inner[0]
    return ("mse", inner[0]) if is_square(node) else None


def is_square(node: Node) -> bool:
    """Whether an operation multiplies something by itself."""
    name, inner = label(node), feeding(node)
    twice = name == "Mul" and len(inner) == 2 and inner[0] is inner[1]
    return twice or (name == "Pow" and getattr(node, "_saved_exponent", None) == 2)


def shape(node: Node, output: int = 0) -> tuple[int, ...] | None:
    """Shape of what the node made in the forward pass.

    Args:
        node: The node.
        output: Which of its outputs: a compiled graph is one node with many.
    """
    try:
        return tuple(int(s) for s in node._input_metadata[output].shape)
    except (AttributeError, IndexError, TypeError, RuntimeError):
        return None
