"""What the optimizer does to each parameter: gradient, weight, update.

Read in eager code next to the optimizer step, so it costs nothing inside a graph. Norms
of gradients are exact; weights and updates are judged on an evenly spaced sample of each
parameter, so that no copy of the model is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.torch.identity import ByTensor

SAMPLE: Final = 16_384  # entries of a parameter that weights and updates are judged on
COLUMNS: Final = (
    m.P_GRAD,
    m.P_GRAD_NONE,
    m.P_GRAD_NONFINITE,
    m.P_WEIGHT,
    m.P_UPDATE,
    m.P_RATIO,
    m.P_STILL,
    m.P_ALIGN,
    m.P_COSINE,
)
# Quotients: undefined, and then absent, where a weight, update or gradient is zero.
QUOTIENTS: Final = (m.P_RATIO, m.P_ALIGN, m.P_COSINE)
HALVES: Final = (torch.float16, torch.bfloat16)

Row = dict[str, Tensor | float]
Table = tuple[NDArray[np.float64], NDArray[np.bool_]]


def sample_of(value: Tensor) -> Tensor:
    """An evenly spaced sample of a tensor's entries, as a flat view or copy."""
    value = value.detach()
    flat = (torch.view_as_real(value) if value.is_complex() else value).reshape(-1)
    return flat[:: max(flat.numel() // SAMPLE, 1)]


def has_values(param: Tensor) -> bool:
    """Whether a parameter holds numbers: not on the meta device, and not lazy any more."""
    return not param.is_meta and not torch.nn.parameter.is_lazy(param)


class ParamLook:
    """One due step's look at the parameters of one optimizer (or of none).

    Args:
        params: The parameters, in the order of the rows; held weakly.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self._params = [weakref.ref(p) for p in params if has_values(p)]
        self._weights: list[Tensor] = []
        self._norms: list[Tensor | None] = []
        self._grads: list[Tensor | None] = []

    @property
    def params(self) -> list[Tensor]:
        """The parameters that still exist."""
        return [p for ref in self._params if (p := ref()) is not None]

    def before(self) -> None:
        """Read gradients and weights before the step."""
        self._weights = [sample_of(p).clone() for p in self.params]
        self.read_gradients()

    def read_gradients(self) -> None:
        """Read the gradients alone, which a closure computes inside the step."""
        grads = [p.grad for p in self.params]
        norms = iter(norms_of([_dense(g) for g in grads if g is not None]))
        self._norms = [None if g is None else next(norms) for g in grads]
        self._grads = [None if g is None or g.is_sparse else sample_of(g).clone() for g in grads]

    def after(self, previous: ByTensor[Tensor]) -> Table | None:
        """Read weights after the step and judge it.

        Args:
            previous: Gradient samples of the last look by parameter; updated.

        Returns:
            Values and presence, shape (parameters, len(COLUMNS)); None if a parameter is
            gone.
        """
        params = self.params
        if len(params) < len(self._params):
            return None
        rows = [self._row(i, param, previous) for i, param in enumerate(params)]
        values = np.zeros((len(rows), len(COLUMNS)))
        present = np.zeros(values.shape, np.bool_)
        places = [(i, COLUMNS.index(name)) for i, row in enumerate(rows) for name in row]
        numbers = _read([x for row in rows for x in row.values()])
        for place, number in zip(places, numbers, strict=True):
            values[place], present[place] = number, True
        _judge(values, present)
        return values, present

    def _row(self, i: int, param: Tensor, previous: ByTensor[Tensor]) -> Row:
        norm, grad = self._norms[i], self._grads[i]
        row: Row = {m.P_GRAD_NONE: float(norm is None)}
        if norm is not None:
            row[m.P_GRAD] = norm
        old, new = _as_float(self._weights[i]), _as_float(sample_of(param))
        if old.shape != new.shape:
            return row
        change = new - old
        row |= _change(old, change, param.numel())
        if grad is not None:
            flat = _as_float(grad).to(change.dtype)
            row[m.P_ALIGN] = -_cosine(change, flat)
            last = previous.get(param)
            if last is not None and last.shape == flat.shape:
                row[m.P_COSINE] = _cosine(last, flat)
            previous.put(param, flat)
        return row


def _change(old: Tensor, change: Tensor, entries: int) -> Row:
    """Size of a weight and of its change; norms are scaled up from the sample."""
    moved, size = torch.linalg.vector_norm(change), torch.linalg.vector_norm(old)
    scale = (entries / max(old.numel(), 1)) ** 0.5
    return {
        m.P_WEIGHT: size * scale,
        m.P_UPDATE: moved * scale,
        m.P_RATIO: moved / size,
        m.P_STILL: 1 - torch.count_nonzero(change) / max(change.numel(), 1),
    }


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    cosine: Tensor = torch.dot(a, b) / lengths
    return cosine


def _as_float(value: Tensor) -> Tensor:
    return value if value.dtype == torch.float64 else value.float()


def _dense(grad: Tensor) -> Tensor:
    return grad.coalesce().values() if grad.is_sparse else grad


def norms_of(grads: list[Tensor]) -> list[Tensor]:
    """Euclidean norm of each tensor; those of halves do not overflow."""
    out: dict[int, Tensor] = {}
    for half, kind in ((True, torch.float32), (False, None)):
        which = [i for i, g in enumerate(grads) if (g.dtype in HALVES) == half]
        if which:
            norms = torch._foreach_norm([grads[i] for i in which], 2, dtype=kind)
            out |= dict(zip(which, norms, strict=True))
    return [out[i] for i in range(len(grads))]


def _read(numbers: list[Tensor | float]) -> list[float]:
    """Many 0-d tensors to the host, in one transfer from each device."""
    there = [n for n in numbers if isinstance(n, Tensor) and n.device.type != "cpu"]
    if not there:
        return [float(n) for n in numbers]
    stacked = torch.stack([n.double().to(there[0].device) for n in there])
    fetched = dict(zip(map(id, there), stacked.cpu().tolist(), strict=True))
    return [fetched[id(n)] if id(n) in fetched else float(n) for n in numbers]


def _judge(values: NDArray[np.float64], present: NDArray[np.bool_]) -> None:
    grad, bad = COLUMNS.index(m.P_GRAD), COLUMNS.index(m.P_GRAD_NONFINITE)
    finite = np.isfinite(values[:, grad])
    values[:, bad], present[:, bad] = present[:, grad] & ~finite, True
    for name in QUOTIENTS:
        j = COLUMNS.index(name)
        present[~np.isfinite(values[:, j]) & finite, j] = False


def carried(params: list[Tensor]) -> float:
    """Norm of the gradients that are already there when a backward pass begins."""
    grads = [_dense(p.grad) for p in params if p.grad is not None and has_values(p)]
    if not grads:
        return 0.0
    return float(torch.linalg.vector_norm(torch.stack([n.float().cpu() for n in norms_of(grads)])))
