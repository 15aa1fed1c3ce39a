"""Operations near the loss that turn finite numbers into NaN or infinity."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from neuraldbg.torch.nodes import Node, label, saved, walk

NODES: Final = 256  # autograd nodes looked at from the loss inwards
ROOTS: Final = ("Sqrt", "LinalgVectorNorm")
GROWING: Final = ("Rsqrt", "Exp", "Reciprocal")
LOGARITHMS: Final = ("Log", "Log2", "Log10")
KNOWN: Final = frozenset((*ROOTS, *GROWING, *LOGARITHMS, "Div", "Pow"))


def hazards(loss: Tensor) -> list[tuple[str, str]]:
    """Operations near the loss that make a non-finite value or gradient.

    Returns:
        Pairs of the operation's name and what is wrong with its input, nearest to the
        loss first. Only saved tensors are read; the nodes of compiled code keep none.
    """
    if loss.grad_fn is None:
        return []
    found = []
    for node in walk(loss.grad_fn, NODES):
        name = label(node)
        trouble = _trouble(node, name) if name in KNOWN else None
        if trouble is not None:
            found.append((name, trouble))
    return found


def _trouble(node: Node, name: str) -> str | None:
    if name in ROOTS or name in GROWING:
        return _bad_result(name, saved(node, "result"))
    if name == "Div":
        return _bad_input(saved(node, "other"), negative=False)
    if name == "Pow":
        exponent = getattr(node, "_saved_exponent", 2)
        below_one = isinstance(exponent, (int, float)) and exponent < 1
        return _bad_input(saved(node, "self"), negative=True) if below_one else None
    return _bad_input(saved(node, "self"), negative=True) if name in LOGARITHMS else None


def _bad_input(value: Tensor | None, *, negative: bool) -> str | None:
    if value is None or not value.is_floating_point():
        return None
    value = value.detach()
    zeros = int((value == 0).sum())
    below = int((value < 0).sum()) if negative else 0
    if zeros == 0 and below == 0:
        return None
    return f"{zeros} zero and {below} negative of {value.numel()} entries"


def _bad_result(name: str, value: Tensor | None) -> str | None:
    if value is None:
        return None
    value = value.detach()
    if name in ROOTS:
        zeros = int((value == 0).sum())
        return f"{zeros} of {value.numel()} results are zero (infinite slope)" if zeros else None
    infinite = int(torch.isinf(value).sum())
    return f"{infinite} of {value.numel()} results are infinite" if infinite else None
