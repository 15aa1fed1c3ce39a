"""What the optimizer does to each parameter: gradient, weight, update.

Read in eager code next to the optimizer step, so it costs nothing inside a graph. Norms
of gradients are exact; weights and updates are judged on an evenly spaced sample of each
parameter, so that no copy of the model is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.torch.identity import ByTensor

# Entries of a parameter that weights and updates are judged on. The relative error of a norm
# is then about 1 % (1 / sqrt(2 n)), and all parameters of a layer cost a few microseconds each.
SAMPLE: Final = 4_096
# Entries of a gradient whose direction is kept from look to look (1 KiB): the cosine of two then
# errs by 0.06 (1 / sqrt(n)), and what is concluded from it is a median over weights and looks.
KEPT: Final = 256
RUN: Final = 16  # neighbouring entries that are taken together: one line of the cache
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
PLAIN: Final = (torch.float32, torch.float64)  # what NumPy reads in place

Row = dict[str, Tensor | float]
# One dimension of numbers, where arithmetic is cheapest: NumPy's calls cost a third of
# torch's on the host. All that is asked of it both kinds write in the same way.
Line = Tensor | NDArray[np.float64]
Table = tuple[NDArray[np.float64], NDArray[np.bool_]]


def sample_of(value: Tensor) -> Line:
    """A copy of evenly spaced entries of a tensor, flat: in host memory an array of float64.

    The stride is odd, so that it does not fall into step with sizes that are powers of two.
    """
    value = value.detach()
    value = torch.view_as_real(value) if value.is_complex() else value
    if value.dtype in PLAIN and value.device.type == "cpu":
        return np.array(_spaced(value.numpy()), np.float64)
    flat: Tensor = _spaced(value)
    if flat.device.type != "cpu":
        return flat.float() if flat.dtype in HALVES else flat.clone()
    line: NDArray[np.float64] = flat.to(torch.float64, copy=True).numpy()
    return line


def _spaced(value: Any) -> Any:  # noqa: ANN401 - a tensor or an array
    flat = value.reshape(-1)
    stride = len(flat) // SAMPLE | 1
    if stride > 1:
        flat = flat[: len(flat) // RUN * RUN].reshape(-1, RUN)[::stride].reshape(-1)
    return flat


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
        self._weights: list[Line] = []
        self._norms: list[Tensor | None] = []
        self._grads: list[Line | None] = []

    @property
    def params(self) -> list[Tensor]:
        """The parameters that still exist."""
        return [p for ref in self._params if (p := ref()) is not None]

    def before(self) -> None:
        """Read gradients and weights before the step."""
        self._weights = [sample_of(p) for p in self.params]
        self.read_gradients()

    def read_gradients(self) -> None:
        """Read the gradients alone, which a closure computes inside the step."""
        grads = [p.grad for p in self.params]
        norms = iter(norms_of([_dense(g) for g in grads if g is not None]))
        self._norms = [None if g is None else next(norms) for g in grads]
        self._grads = [None if g is None or g.is_sparse else sample_of(g) for g in grads]

    def after(self, previous: ByTensor[Line]) -> Table | None:
        """Read weights after the step and judge it.

        Args:
            previous: Directions of the gradients at the last look by parameter; updated.

        Returns:
            Values and presence, shape (parameters, len(COLUMNS)); None if a parameter is
            gone.
        """
        params = self.params
        if len(params) < len(self._params):
            return None
        with np.errstate(all="ignore"):
            rows = [self._row(i, param, previous) for i, param in enumerate(params)]
        values = np.zeros((len(rows), len(COLUMNS)))
        present = np.zeros(values.shape, np.bool_)
        places = [(i, COLUMNS.index(name)) for i, row in enumerate(rows) for name in row]
        numbers = _read([x for row in rows for x in row.values()])
        for place, number in zip(places, numbers, strict=True):
            values[place], present[place] = number, True
        _judge(values, present)
        return values, present

    def _row(self, i: int, param: Tensor, previous: ByTensor[Line]) -> Row:
        norm, grad = self._norms[i], self._grads[i]
        row: Row = {m.P_GRAD_NONE: float(norm is None)}
        if norm is not None:
            row[m.P_GRAD] = norm
        old, new = self._weights[i], sample_of(param)
        if old.shape != new.shape:
            return row
        change = new - old
        row |= _change(old, change, param.numel())
        if grad is not None:
            row[m.P_ALIGN] = -_cosine(change, grad)
            last, now = previous.get(param), _direction(grad)
            if last is not None and last.shape == now.shape:
                row[m.P_COSINE] = last @ now
            previous.put(param, now)
        return row


def _direction(grad: Any) -> Any:  # noqa: ANN401 - either kind of `Line`
    """A thinned copy of a gradient, of length one: what is kept of it until the next look."""
    thin = grad[:: len(grad) // KEPT | 1]
    unit = thin / (thin @ thin) ** 0.5
    return unit.float() if isinstance(unit, Tensor) else unit.astype(np.float32)


def _change(old: Any, change: Any, entries: int) -> Row:  # noqa: ANN401 - either kind of `Line`
    """Size of a weight and of its change; norms are scaled up from the sample."""
    moved, size = (change @ change) ** 0.5, (old @ old) ** 0.5
    scale = (entries / max(len(old), 1)) ** 0.5
    return {
        m.P_WEIGHT: size * scale,
        m.P_UPDATE: moved * scale,
        m.P_RATIO: moved / size,
        m.P_STILL: 1 - (change != 0).sum() / max(len(change), 1),
    }


def _cosine(a: Any, b: Any) -> Any:  # noqa: ANN401 - either kind of `Line`
    return a @ b / ((a @ a) * (b @ b)) ** 0.5


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
