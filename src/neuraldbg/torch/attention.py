"""How sharply attention that is written by hand looks: read off the loss's autograd graph."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from neuraldbg.torch.nodes import Node, feeding, label, saved, walk

NODES: Final = 512  # autograd nodes looked at from the loss inwards
MOST: Final = 8  # softmaxes that are read
LEAST_ENTRIES: Final = 4  # with fewer to choose from, one entry has most of the weight anyway
# What receives the weights of an attention (or of a gate), and not the probabilities of classes.
MIXING: Final = frozenset(
    {
        "Bmm",
        "Mm",
        "Mul",
        "Expand",
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Unsqueeze",
        "NativeDropout",
    }
)


def peaks(loss: Tensor) -> list[float]:
    """The largest weight of a row, on average over the rows, of each softmax that mixes.

    Args:
        loss: The loss before its backward pass.

    Returns:
        One number from 1 over the number of entries (even) to 1 (all weight on one entry) for
        each softmax, nearest to the loss first. Fused attention and compiled code keep none.
    """
    if loss.grad_fn is None:
        return []
    found: dict[Node, float] = {}
    for node in walk(loss.grad_fn, NODES):
        if label(node) not in MIXING or _only_scales(node):
            continue
        for given in map(_unscaled, feeding(node)):
            if label(given) == "Softmax" and given not in found:
                peak = _peak(given)
                if peak is not None:
                    found[given] = peak
        if len(found) >= MOST:
            break
    return list(found.values())


def _only_scales(node: Node) -> bool:
    """Whether an operation multiplies by one number, such as a temperature."""
    if label(node) != "Mul" or len(feeding(node)) > 1:
        return False
    factor = saved(node, "other")
    return factor is None or not factor.dim()


def _unscaled(node: Node) -> Node:
    while _only_scales(node):
        node = feeding(node)[0]
    return node


def _peak(softmax: Node) -> float | None:
    weights = saved(softmax, "result")
    if weights is None or weights.dim() < 2 or weights.shape[-1] < LEAST_ENTRIES:
        return None
    return float(weights.detach().amax(-1).float().mean())
