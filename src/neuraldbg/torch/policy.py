"""Policy gradients: log-probabilities of what was chosen, weighed by rewards or advantages."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from neuraldbg.torch.nodes import Node, label, names, saved

DEPTH: Final = 16  # nodes followed from the reduction to the log-probability
JOINED: Final = 64  # of the terms that are joined, so many are read
# What only puts the entries in another place.
MOVED: Final = frozenset(
    (
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Flatten", "Squeeze", "Unsqueeze"),
        *("Clone", "Slice", "Select", "Unbind", "Sum", "Expand", "Transpose", "Permute"),
    )
)
CHOICES: Final = frozenset({"Gather", "Index", "Select"})
# -(x - mean)^2 / (2 var) - log(std) - constant, from the outside: `Normal.log_prob`.
NORMAL: Final = ["Sub", "Sub", "Div", "Neg", "Pow"]


class Policy(NamedTuple):
    """A weighed log-probability.

    Attributes:
        negated: Whether a minus sign stands between it and the reduction.
        lean: Mean weight over mean absolute weight, -1 (all are costs) to 1 (all rewards).
    """

    negated: bool
    lean: float


def policy(node: Node) -> Policy | None:
    """Recognise the objective of a policy gradient in what a loss reduces.

    Args:
        node: What was averaged or summed.
    """
    while label(node) in MOVED and (inner := _inner(node)):
        node = inner[0]
    joined = _inner(node)[:JOINED] if label(node) in ("Stack", "Cat") else [node]
    terms = [_term(n) for n in joined]
    if not terms or terms[0] is None:
        return None
    weights = torch.cat([w.flatten() for _, w in filter(None, terms)])
    size = float(weights.abs().mean())
    return Policy(terms[0][0], float(weights.mean()) / size if size else 0.0)


def _term(node: Node) -> tuple[bool, Tensor] | None:
    """Whether a minus sign stands before a weighed log-probability, and the weights."""
    negated, weights = False, None
    for _ in range(DEPTH):
        if _is_chosen(node):
            return None if weights is None else (negated, weights)
        name, inner = label(node), _inner(node)
        if name == "Mul" and len(inner) == 1 and (factor := _constant(node)) is not None:
            weights = factor if weights is None else weights * factor  # advantages, and a mask
        elif name == "Neg":
            negated = not negated
        elif name not in MOVED and name != "Stack":
            return None
        if not inner:
            return None
        node = inner[0]
    return None


def _inner(node: Node) -> list[Node]:
    return [n for n, _ in node.next_functions if n is not None]


def _constant(node: Node) -> Tensor | None:
    """The operand of a product that wants no gradient and is no number of the script's."""
    known = [t for t in (saved(node, "self"), saved(node, "other")) if t is not None]
    numbers = [t for t in known if not t.requires_grad and t.is_floating_point()]
    # Python's numbers are saved in double precision.
    return next((t.float() for t in numbers if t.dim() or t.dtype != torch.float64), None)


def _is_chosen(node: Node) -> bool:
    """The log-probability of what was chosen, among some or from a normal distribution."""
    if label(node) in CHOICES:
        return any(_is_log_probability(n) for n in _inner(node))
    if label(node) == "Log":
        return any(label(n) in CHOICES for n in _inner(node))
    return names(node, len(NORMAL)) == NORMAL


def _is_log_probability(node: Node) -> bool:
    """A log-softmax, the logarithm of probabilities, or scores less their log-sum-exp."""
    name, below = label(node), [label(n) for n in _inner(node)]
    return name in ("LogSoftmax", "Log") or (name == "Sub" and "Logsumexp" in below)
