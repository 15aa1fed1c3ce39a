"""Label smoothing: the two terms that torch makes of one cross-entropy."""

from __future__ import annotations

from typing import Final, NamedTuple

from neuraldbg.torch.nodes import FUSED, Node, feeding, label, walk

# Operations between the uniform term and the log-softmax whose entries it adds up.
DEPTH: Final = 8


class Smoothed(NamedTuple):
    """A smoothed cross-entropy.

    Attributes:
        core: The term for the labels themselves.
        share: What is taken from the label and spread over all classes, 0..1.
        classes: How many classes there are.
    """

    core: Node
    share: float
    classes: int


def smoothed(node: Node) -> Smoothed | None:
    """Recognise `cross_entropy(..., label_smoothing=share)` by its sum of two terms.

    Args:
        node: The operation that adds them.
    """
    terms = feeding(node)
    if label(node) != "Add" or len(terms) != 2:
        return None
    weights = [_weight(term) for term in terms]
    inner = [next(iter(feeding(term)), None) for term in terms]
    if None in weights or inner[0] is None or FUSED.get(label(inner[0])) != "nll":
        return None
    kept, each = float(weights[0] or 0.0), float(weights[1] or 0.0)
    if not 0 < each <= 1 - kept < 1 or not _is_uniform(inner[1]):
        return None
    return Smoothed(inner[0], 1 - kept, round((1 - kept) / each))


def _weight(term: Node) -> float | None:
    """The plain number that a term is multiplied by; torch keeps its own as a scalar."""
    number = getattr(term, "_saved_other", None) if label(term) == "Mul" else None
    return number if isinstance(number, float) else None


def _is_uniform(term: Node | None) -> bool:
    return term is not None and any(label(n) == "LogSoftmax" for n in walk(term, DEPTH))
