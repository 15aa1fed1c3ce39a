"""The terms that a loss adds up, and how each was reduced."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from neuraldbg.core.facts import LossPart
from neuraldbg.torch.data import is_readable, table
from neuraldbg.torch.nodes import FUSED, Node, feeding, label, saved, shape, walk
from neuraldbg.torch.normal import is_divergence
from neuraldbg.torch.policy import policy
from neuraldbg.torch.smoothing import smoothed

PARTS: Final = 8  # terms described at most
ROW: Final = 12  # operations searched for a row of scalars
DEPTH: Final = 24  # scalar operations followed from the loss inwards
QUANTITIES: Final = ("mse", "smooth_l1")  # kinds of error that have a unit and keep the target
FUSED_REDUCTION: Final = {1: "mean", 2: "sum"}
# A sum divided by at least this much is normalised by a count, not merely scaled.
COUNT: Final = 4.0


def parts_of(root: Node) -> tuple[LossPart, ...]:
    """The terms of a scalar loss, in the order they are added.

    Args:
        root: The autograd node of the loss.
    """
    return tuple(part for part, _ in zip(_walk(root, 1.0, DEPTH), range(PARTS), strict=False))


def _walk(node: Node, factor: float | None, depth: int) -> Iterator[LossPart]:
    """Follow sums and scalings of scalars down to where entries are reduced."""
    name = label(node)
    inner = [n for n, _ in node.next_functions if n is not None and not hasattr(n, "variable")]
    if depth == 0 or name in FUSED:
        yield _reduced(node, factor)
    elif (soft := smoothed(node)) is not None:
        whole = _reduced(soft.core, factor)
        yield replace(whole, smoothing=soft.share, classes=soft.classes)
    elif name in ("Add", "Sub") and shape(node) == ():
        for i, n in enumerate(inner):
            negative = name == "Sub" and i == 1
            yield from _walk(
                n, None if factor is None else -factor if negative else factor, depth - 1
            )
    elif name == "Div" and shape(node) == () and _is_count(saved(node, "other")):
        # A sum over its count is a mean; a mean that is divided again is scaled.
        smaller = _scaled(node, name, factor)
        for part in _walk(inner[0], factor, depth - 1) if inner else ():
            if part.reduction == "sum":
                yield replace(part, reduction="normalised_sum", count=_number(node))
            else:
                yield replace(part, factor=smaller)
    elif name in ("Sum", "Mean") and (row := _row(node)) is not None:
        each = _share(name, node, row, factor)
        for n in feeding(row):
            yield from _walk(n, each, depth - 1)
    elif name in ("Mul", "Div", "Neg") and shape(node) == () and len(inner) == 1:
        yield from _walk(inner[0], _scaled(node, name, factor), depth - 1)
    else:
        yield _reduced(node, factor)


def _row(node: Node) -> Node | None:
    """The row that terms are put into, perhaps weighed, and added up; None if there is none."""
    for below in walk(node, ROW):
        if label(below) == "Stack" and len(shape(below) or ()) == 1:
            terms = feeding(below)
            return below if len(terms) <= PARTS and all(map(_is_term, terms)) else None
    return None


def _is_term(node: Node) -> bool:
    """Whether a scalar is made of many numbers, and is not what is said of one sample."""
    scalars = [n for n in walk(node, ROW) if shape(n) == ()]
    return shape(node) == () and any(label(n) in (*FUSED, "Mean", "Sum") for n in scalars)


def _share(name: str, node: Node, row: Node, factor: float | None) -> float | None:
    """What each entry of a row counts; None where something has weighed them on the way."""
    if factor is None or feeding(node) != [row]:
        return None
    return factor if name == "Sum" else factor / len(feeding(row))


def _is_count(divisor: Tensor | None) -> bool:
    """Whether a sum is divided by a count or by something that depends on the data."""
    if divisor is None or divisor.numel() != 1:
        return True
    # Python numbers are saved in double precision or as integers.
    return (
        divisor.dtype in (torch.float32, torch.float16, torch.bfloat16)
        or abs(float(divisor)) >= COUNT
    )


def _scaled(node: Node, name: str, factor: float | None) -> float | None:
    if factor is None or name == "Neg":
        return None if factor is None else -factor
    other = saved(node, "other")
    if other is None or other.numel() != 1 or other.requires_grad:
        return None
    number = float(other)
    if name == "Div":
        return factor / number if number else math.inf
    return factor * number


def _reduced(node: Node, factor: float | None) -> LossPart:
    name = label(node)
    if name in FUSED:
        size, reduction = saved(node, "self"), FUSED_REDUCTION.get(_code(node), "none")
        entries = 0 if size is None else size.numel()
        return LossPart(FUSED[name], reduction, factor, entries, spread=_spread(node))
    if name in ("Mean", "Sum"):
        given = _entries(node)
        below = next((n for n, _ in node.next_functions if n is not None), None)
        sums = name == "Mean" and below is not None and _adds_up(below)
        kind = "divergence" if below is not None and is_divergence(below) else "custom"
        part = LossPart(kind, "mean_of_sums" if sums else name.lower(), factor, given)
        chosen = None if below is None else policy(below)
        if chosen is None:
            return part
        turned = -1.0 if chosen.negated else 1.0
        return replace(
            part,
            kind="policy",
            factor=None if factor is None else turned * factor,
            lean=chosen.lean,
        )
    return LossPart(name.lower(), "none", factor, math.prod(shape(node) or ()))


def _adds_up(node: Node) -> bool:
    """Whether a row of numbers, one for each sample, are sums over what a sample has."""
    if label(node) in ("Add", "Sub"):
        return any(label(n) == "Sum" for n in feeding(node))
    return label(node) == "Sum"


def _number(node: Node) -> float | None:
    """What a quotient divides by, if it is one known number."""
    divisor = saved(node, "other")
    return float(divisor) if divisor is not None and divisor.numel() == 1 else None


def _spread(node: Node) -> float | None:
    """The standard deviation of the targets of a squared or Huber error."""
    target = saved(node, "target") if FUSED[label(node)] in QUANTITIES else None
    if target is None or not is_readable(target):
        return None
    spread = float(table(target).double().std(correction=0))
    return spread if math.isfinite(spread) else None


def _code(node: Node) -> Any:  # noqa: ANN401 - an attribute of a C++ object
    return getattr(node, "_saved_reduction", None)


def _entries(node: Node) -> int:
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    if sizes is not None:
        return int(math.prod(int(s) for s in sizes))
    below = next((n for n, _ in node.next_functions if n is not None), None)
    return math.prod((shape(below) if below is not None else None) or ())
