"""Which way a loss moves with the errors in it: it should fall when they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from neuraldbg.core.facts import REGRESSION
from neuraldbg.torch.nodes import FUSED, Node, constants, difference, feeding, label

NODES: Final = 64  # operations followed from the loss inwards
LOGARITHMS: Final = frozenset({"Log", "Log2", "Log10", "Log1P"})
# Operations that grow with what they are given, or leave its size alone.
RISING: Final = LOGARITHMS | frozenset(
    (
        *("Mean", "Sum", "Sqrt", "Exp", "Add", "View", "UnsafeView", "Reshape", "ReshapeAlias"),
        *("Squeeze", "Unsqueeze", "Expand", "Flatten", "Clone", "ToCopy", "Select", "Clamp"),
        *("ClampMin", "Stack", "Cat"),
    )
)
FALLING: Final = frozenset({"Neg", "Rsub", "Reciprocal"})

Path = tuple[Node, int, bool]  # an operation, the sign it counts with, whether it is positive


def is_maximised(root: Node) -> bool:
    """Whether a loss falls only where each error in it, between two things that vary, grows.

    So it does where a ratio of signal to noise is minimised. Terms in which differences count
    with either sign (contrasts, margins) are meant so.

    Args:
        root: The autograd node of the loss.
    """
    signs = list(_signs(root))
    return bool(signs) and all(sign < 0 for sign in signs)


def _signs(root: Node) -> Iterator[int]:
    """The sign with which each squared or absolute difference counts."""
    paths: list[Path] = [(root, 1, False)]
    for _ in range(NODES):
        if not paths:
            return
        node, sign, positive = paths.pop(0)
        if _is_error(node):
            yield sign
        else:
            paths += _inwards(node, sign, positive=positive)


def _is_error(node: Node) -> bool:
    """Whether an operation is the size of a difference of two things."""
    if FUSED.get(label(node)) in REGRESSION:
        return True
    found = difference(node)
    # What is taken from its own mean is a spread, and no error.
    return found is not None and "Mean" not in [label(n) for n in feeding(found[1])]


def _inwards(node: Node, sign: int, *, positive: bool) -> list[Path]:
    """What an operation is made of, with the sign of each; nothing where that is not known."""
    name, inner = label(node), feeding(node)
    if name in RISING:
        return [(n, sign, name in LOGARITHMS or positive) for n in inner]
    if name in FALLING:
        return [(n, -sign, False) for n in inner]
    if name == "Sub":
        first = node.next_functions[0][0]
        return [(n, sign if n is first else -sign, False) for n in inner]
    if name in ("Mul", "Div") and len(inner) == 1:
        return [(inner[0], sign * _sign_of_factor(node), positive)] if _sign_of_factor(node) else []
    if name == "Div" and len(inner) == 2 and positive:
        # Under a logarithm, both are taken to be sizes.
        return [(inner[0], sign, True), (inner[1], -sign, True)]
    return []


def _sign_of_factor(node: Node) -> int:
    """The sign of the constant that something is multiplied with or divided by; 0 if unknown."""
    factor = next(iter(constants(node)), None)
    if factor is None or factor.numel() == 0:
        return 0
    if bool((factor >= 0).all()):
        over = label(node) == "Div" and node.next_functions[0][0] is None
        return -1 if over else 1
    return 0 if not bool((factor < 0).all()) else -1
