"""O(1) statistics of one tensor.

Costs a handful of passes over the tensor; nothing of the tensor itself is kept. On the
CPU the numbers come back as floats; on a device they stay there as 0-d tensors, so that
nothing waits for it.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

# Shares (zeros, flat regions) of larger tensors are estimated from an evenly spaced
# sample of this many entries: the standard error of a share is then under 0.2 %.
SAMPLE: Final = 65_536

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


def measure(value: Tensor, axis: int | None, flat: str | None) -> tuple[Numbers, Numbers]:
    """The statistics of a tensor, ordered as `SUMS` and `PEAKS`.

    Args:
        value: A floating tensor of any shape with at least one entry.
        axis: Its unit (channel) dimension, or None if it has none.
        flat: The activation whose flat region is counted: `sigmoid`, `tanh`, `bounded`
            (told by the range: one of the two, or none), or None.
    """
    line = _as_float(value.detach())
    dims, units = _unit_dims(line, axis)
    high, low = (line.amax(dims), line.amin(dims)) if dims else (line, line)
    line = line.reshape(-1)
    sample = line[:: max(line.numel() // SAMPLE, 1)]
    top, bottom = high.max(), low.min()
    host = value.device.type == "cpu"
    sums: Numbers = [
        1.0,
        float(line.numel()),
        total := line.sum(),
        _squares(line, top, bottom, host=host),
        float(sample.numel()),
        sample.numel() - torch.count_nonzero(sample),
        _flat(sample, flat, top, bottom, host=host),
        _nonfinite(line, total, host=host),
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


def _unit_dims(value: Tensor, axis: int | None) -> tuple[list[int], int]:
    if axis is None or value.dim() < 2 or axis >= value.dim():
        return [], 0
    axis %= value.dim()
    dims = [d for d in range(value.dim()) if d != axis]
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
        # Only a sigmoid is positive throughout; rectified values touch zero.
        if top > 1 or bottom < -1 or bottom == 0:
            return 0.0
        kind = "sigmoid" if bottom > 0 else "tanh"
    if kind == "sigmoid":
        return ((sample - 0.5).abs() > SIGMOID_FLAT).sum()
    if kind == "tanh":
        return (sample.abs() > TANH_FLAT).sum()
    return 0.0


def _nonfinite(line: Tensor, total: Tensor, *, host: bool) -> Number:
    # A finite sum proves finite entries; only otherwise is the exact count worth a pass.
    if host and math.isfinite(total):
        return 0.0
    return (~torch.isfinite(line)).sum()
