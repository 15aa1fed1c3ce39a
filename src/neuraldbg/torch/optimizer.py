"""What the optimizer does to each parameter: gradient, weight, update.

Read in eager code next to the optimizer step, so it costs nothing inside a graph. Norms
of gradients are exact; weights and updates are judged on an evenly spaced sample of each
parameter, so that no copy of the model is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuraldbg.core import metrics as m

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


def sample_of(value: Tensor) -> Tensor:
    """An evenly spaced sample of a tensor's entries, as a flat view or copy."""
    flat = value.detach().reshape(-1)
    return flat[:: max(flat.numel() // SAMPLE, 1)]


@dataclass
class ParamLook:
    """One due step's look at the parameters of one optimizer (or of none).

    Attributes:
        params: The parameters, in the order of the rows.
    """

    params: list[Tensor]
    _grads: list[Tensor | None] = field(default_factory=list)
    _before: list[Tensor] = field(default_factory=list)
    _norms: list[Tensor | None] = field(default_factory=list)

    def before(self) -> None:
        """Read gradients and weights before the step."""
        self._grads = [None if p.grad is None else _dense(p.grad) for p in self.params]
        self._before = [sample_of(p).clone() for p in self.params]
        present = [g for g in self._grads if g is not None]
        norms = iter(torch._foreach_norm(present) if present else ())
        self._norms = [None if g is None else next(norms) for g in self._grads]
        self._grads = [
            None if p.grad is None or p.grad.is_sparse else sample_of(p.grad).clone()
            for p in self.params
        ]

    def after(self, previous: dict[int, Tensor]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Read weights after the step and judge it.

        Args:
            previous: Gradient samples of the last look by id of the parameter; updated.

        Returns:
            Values and presence, shape (parameters, len(COLUMNS)).
        """
        rows = [self._row(i, previous) for i in range(len(self.params))]
        flat = [x for row in rows for x in row if isinstance(x, Tensor)]
        read = iter(_read(flat))
        values = np.zeros((len(rows), len(COLUMNS)))
        present = np.zeros(values.shape, np.bool_)
        for i, row in enumerate(rows):
            for j, x in enumerate(row):
                if x is None:
                    continue
                present[i, j] = True
                values[i, j] = next(read) if isinstance(x, Tensor) else x
        _judge(values, present)
        return values, present

    def _row(self, i: int, previous: dict[int, Tensor]) -> list[Tensor | float | None]:
        param, norm, grad = self.params[i], self._norms[i], self._grads[i]
        old, new = self._before[i].float(), sample_of(param).float()
        if old.shape != new.shape:
            return [norm, float(norm is None), None, None, None, None, None, None, None]
        change = new - old
        scale = (param.numel() / max(old.numel(), 1)) ** 0.5
        moved = torch.linalg.vector_norm(change)
        size = torch.linalg.vector_norm(old)
        still = 1 - torch.count_nonzero(change) / max(change.numel(), 1)
        align = cosine = None
        if grad is not None:
            flat = grad.float()
            length = torch.linalg.vector_norm(flat)
            align = -torch.dot(change, flat) / (moved * length)
            cosine = self._cosine(param, flat, length, previous)
        return [
            norm,
            float(norm is None),
            None,
            size * scale,
            moved * scale,
            moved / size,
            still,
            align,
            cosine,
        ]

    def _cosine(
        self, param: Tensor, grad: Tensor, length: Tensor, previous: dict[int, Tensor]
    ) -> Tensor | None:
        last = previous.get(id(param))
        previous[id(param)] = grad
        if last is None or last.shape != grad.shape:
            return None
        return torch.dot(last, grad) / (torch.linalg.vector_norm(last) * length)


def _dense(grad: Tensor) -> Tensor:
    return grad.coalesce().values() if grad.is_sparse else grad


def _read(numbers: list[Tensor]) -> list[float]:
    """Many 0-d tensors to the host in one transfer for each device."""
    if not numbers:
        return []
    if all(n.device.type == "cpu" for n in numbers):
        return [float(n) for n in numbers]
    stacked = torch.stack([n.float().to(numbers[0].device) for n in numbers])
    return [float(x) for x in stacked.cpu().tolist()]


def _judge(values: NDArray[np.float64], present: NDArray[np.bool_]) -> None:
    grad, bad, ratio = (COLUMNS.index(c) for c in (m.P_GRAD, m.P_GRAD_NONFINITE, m.P_RATIO))
    values[:, bad] = present[:, grad] & ~np.isfinite(values[:, grad])
    present[:, bad] = True
    # 0/0: a weight of zero that did not move has no ratio.
    nothing = np.isnan(values[:, ratio]) & present[:, grad] & np.isfinite(values[:, grad])
    for column in (m.P_RATIO, m.P_ALIGN, m.P_COSINE):
        j = COLUMNS.index(column)
        undefined = ~np.isfinite(values[:, j]) & np.isfinite(values[:, grad])
        present[undefined, j] = False
    present[nothing, ratio] = False


def carried(params: list[Tensor]) -> float:
    """Norm of the gradients that are already there when a backward pass begins."""
    grads = [_dense(p.grad) for p in params if p.grad is not None]
    if not grads:
        return 0.0
    norms = torch._foreach_norm(grads)
    return float(torch.linalg.vector_norm(torch.stack([n.float().cpu() for n in norms])))
