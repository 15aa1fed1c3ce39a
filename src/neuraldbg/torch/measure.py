"""O(1) statistics of one tensor.

Costs a handful of passes over the tensor; nothing of the tensor itself is kept. On the
CPU the numbers come back as floats; on a device they stay there as 0-d tensors, so that
nothing waits for it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Up to this many entries a tensor is measured whole. Of a larger one the mean and the count of
# non-finite entries are exact where they are asked to be, and all
# else comes from an evenly spaced part of about `PART` entries: the standard error of a
# share is then under 0.6 %, and a look costs the same however large the model is.
WHOLE: Final = 65_536
PART: Final = 8_192
RUN: Final = 64  # neighbouring entries that are taken together

# A part holds few samples of a wide layer, so a unit that fires seldom looks dead in it. Where
# at least this share of units looks so, the whole tensor is asked; below it nothing hangs on
# the number (layers count as dead or collapsed from 90 % on).
DOUBTFUL: Final = 0.5

# Where the derivative of the activation is under 6 % of its largest value: a sigmoid
# beyond 0.985 (0.0148 against 0.25), a tanh beyond 0.97 (0.059 against 1).
SIGMOID_FLAT: Final = 0.485
TANH_FLAT: Final = 0.97

# Sums of squares below this lose digits to the smallest numbers of float32.
TINY: Final = 1e-30

# Order of the accumulated numbers: SUMS add up over the calls of a step, PEAKS take the
# maximum.
SUMS: Final = (
    "calls",
    "count",
    "sum",
    "square",
    "sampled",
    "zeros",
    "flat",
    "nonfinite",
    "units",
    "negative_units",
    "constant_units",
)
PEAKS: Final = ("high", "negative_low")

Number = float | Tensor
Numbers = list[Number]


def measure(
    value: Tensor, axis: int | None, flat: str | None, *, scan: bool = True
) -> tuple[Numbers, Numbers]:
    """The statistics of a tensor, ordered as `SUMS` and `PEAKS`.

    Args:
        value: A floating tensor of any shape with at least one entry.
        axis: Its unit (channel) dimension, or None if it has none.
        flat: The activation whose flat region is counted: `sigmoid`, `tanh`, `bounded`
            (told by the range: one of the two, or none), or None.
        scan: Whether the mean and the non-finite entries of a large tensor are to be exact.
            On the host that is one more pass over memory, which can cost more than all else.
    """
    value = value.detach()
    whole = value.numel() <= WHOLE
    if value.device.type != "cpu":
        part = _as_float(value if whole else part_of(value, axis).contiguous())
        sums, peaks = _measure(part, value, axis, flat, host=False)
        if not whole:
            sums[SUMS.index("sum")] = value.sum(dtype=torch.float32)
        return sums, peaks
    array = _array(value, axis, whole=whole)
    if whole or scan:
        # A small one in the order of its entries, which is not always that of memory.
        line = value.reshape(-1) if whole else value
        total = float(line.sum(dtype=None if value.dtype == torch.float64 else torch.float32))
    else:
        with np.errstate(all="ignore"):
            total = float(array.sum()) * value.numel() / array.size
    if not math.isfinite(total):
        return _measure(_as_float(value), value, axis, flat, host=True)
    return _measure_array(array, value, axis, flat, total)


def _array(value: Tensor, axis: int | None, *, whole: bool) -> NDArray[Any]:
    """A tensor in host memory, or a part of it, as an array in one piece.

    NumPy's calls cost a third of torch's on arrays of this size, and a look makes hundreds.
    """
    if value.dtype in (torch.float32, torch.float64):
        array = value.numpy()
        return np.ascontiguousarray(array if whole else part_of(array, axis))
    return _array((value if whole else part_of(value, axis)).float(), axis, whole=True)


def _measure_array(
    part: NDArray[Any], whole: Tensor, axis: int | None, flat: str | None, total: float
) -> tuple[Numbers, Numbers]:
    """As `_measure`, of the finite part of a tensor in host memory."""
    line = part.ravel()
    dims, units = _unit_dims(part, axis)
    negative = constant = 0
    if units:
        high, low = part.max(tuple(dims)), part.min(tuple(dims))
        negative, constant = _quiet_units(part, whole, axis, high <= 0, high == low)
    else:
        high, low = line, line
    top, bottom = float(high.max()), float(low.min())
    with np.errstate(over="ignore", under="ignore"):
        squares = float(np.dot(line, line))
    if not TINY < squares < math.inf:
        squares = float(np.square(line, dtype=np.float64).sum())
    sums: Numbers = [
        1.0,
        float(whole.numel()),
        total,
        squares,
        float(line.size),
        float(np.count_nonzero(line == 0)),
        _flat_entries(line, flat, top, bottom),
        0.0,
        float(units),
        float(negative),
        float(constant),
    ]
    return sums, [top, -bottom]


def _quiet_units(
    part: NDArray[Any],
    whole: Tensor,
    axis: int | None,
    negative: NDArray[np.bool_],
    constant: NDArray[np.bool_],
) -> tuple[int, int]:
    """How many units are never above zero, and how many are constant.

    Args:
        part: A part of the tensor, or all of it.
        whole: The tensor.
        axis: Its unit dimension.
        negative: The units that look never above zero in the part.
        constant: The units that look constant in the part.
    """
    doubtful = np.count_nonzero(negative | constant) >= DOUBTFUL * len(negative)
    if part.size == whole.numel() or not doubtful:
        return int(np.count_nonzero(negative)), int(np.count_nonzero(constant))
    dims, _ = _unit_dims(whole, axis)
    high, low = whole.amax(dims), whole.amin(dims)
    return int((high <= 0).sum()), int((high == low).sum())


def _flat_entries(line: NDArray[Any], kind: str | None, top: float, bottom: float) -> float:
    kind = _bounded(top, bottom) if kind == "bounded" else kind
    if kind == "sigmoid":
        return float(np.count_nonzero(np.abs(line - 0.5) > SIGMOID_FLAT))
    return float(np.count_nonzero(np.abs(line) > TANH_FLAT)) if kind == "tanh" else 0.0


def _bounded(top: float, bottom: float) -> str | None:
    """The activation that a range tells: only a sigmoid is positive throughout."""
    if top > 1 or bottom < -1 or bottom == 0:
        return None
    return "sigmoid" if bottom > 0 else "tanh"


def part_of(value: Any, axis: int | None) -> Any:  # noqa: ANN401 - a tensor or an array
    """An evenly spaced part of a large tensor (or array) that holds all of its units: a view.

    The stride is odd, so that it does not fall into step with sizes that are powers of two.
    """
    stride = math.prod(value.shape) // PART | 1
    if axis is None or value.ndim < 2 or axis >= value.ndim:
        line = value.reshape(-1)
        return line[: len(line) // RUN * RUN].reshape(-1, RUN)[::stride]
    if axis in (-1, value.ndim - 1):
        return value.reshape(-1, value.shape[-1])[::stride]
    for dim in (d for d in range(value.ndim) if d != axis):
        step = min(stride, max(value.shape[dim] // 2, 1)) | 1
        value = value[(slice(None),) * dim + (slice(None, None, step),)]
        stride = max(stride // step, 1)
    return value


def _measure(
    part: Tensor, whole: Tensor, axis: int | None, flat: str | None, *, host: bool
) -> tuple[Numbers, Numbers]:
    dims, units = _unit_dims(part, axis)
    # A part of a wide layer holds a few samples only; a unit that fires seldom is not dead.
    above = part if part.numel() == whole.numel() else whole
    upper = _unit_dims(above, axis)[0]
    high, low = (above.amax(upper), part.amin(dims)) if dims else (part, part)
    line = part.reshape(-1)
    top, bottom = high.max(), low.min()
    sums: Numbers = [
        1.0,
        float(whole.numel()),
        total := line.sum(),
        _squares(line, top, bottom, host=host),
        float(line.numel()),
        line.numel() - torch.count_nonzero(line),
        _flat(line, flat, top, bottom, host=host),
        _nonfinite(whole, total, host=host),
        float(units),
        (high <= 0).sum() if units else 0.0,
        (high == low).sum() if dims else 0.0,
    ]
    peaks: Numbers = [top, -bottom]
    if host:
        return [float(x) for x in sums], [float(x) for x in peaks]
    return sums, peaks


def _as_float(value: Tensor) -> Tensor:
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


def _unit_dims(value: Tensor | NDArray[Any], axis: int | None) -> tuple[list[int], int]:
    if axis is None or value.ndim < 2 or axis >= value.ndim:
        return [], 0
    axis %= value.ndim
    dims = [d for d in range(value.ndim) if d != axis]
    return dims, value.shape[axis]


def _squares(line: Tensor, top: Tensor, bottom: Tensor, *, host: bool) -> Number:
    squares = torch.dot(line, line)
    if not host or TINY < squares < math.inf:
        return squares
    # Squares leave the range of float32 long before the numbers do.
    peak = max(float(top), -float(bottom))
    return line.double().square().sum() if 0 < peak < math.inf else squares


def _flat(sample: Tensor, kind: str | None, top: Tensor, bottom: Tensor, *, host: bool) -> Number:
    if kind == "bounded" and host:
        kind = _bounded(float(top), float(bottom))
    if kind == "sigmoid":
        return ((sample - 0.5).abs() > SIGMOID_FLAT).sum()
    if kind == "tanh":
        return (sample.abs() > TANH_FLAT).sum()
    return 0.0


def _nonfinite(whole: Tensor, total: Tensor, *, host: bool) -> Number:
    # A finite sum proves finite entries; only otherwise is the exact count worth a pass.
    if host and math.isfinite(total):
        return 0.0
    return (~torch.isfinite(whole)).sum()
