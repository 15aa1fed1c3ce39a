"""Statistics of the batch and of what the model predicts."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import TensorFact

# Larger batches are looked at through this many samples and features.
SAMPLES: Final = 512
FEATURES: Final = 2_048
# Distinct values are counted up to here.
DISTINCT: Final = 1_000
# A row of probabilities sums to one within the rounding of half precision.
SUM_TOLERANCE: Final = 2e-3
# Distinct numbers among the samples, for each of their entries. Measured numbers seldom come
# twice; codes and grids have a few for all entries together.
FEW_VALUES: Final = 0.5
# Samples that are asked whether an axis is even, and the longest axis that may be one of colours.
EVEN_SAMPLES: Final = 64
CHANNELS: Final = 4

Numbers = dict[str, float]
Floats = NDArray[np.float32]


def table(value: Tensor) -> Tensor:
    """The batch as (samples, features) in float32, thinned when large."""
    value = value.detach()
    if value.dim() == 0:
        return value.reshape(1, 1).float()
    samples = value[:: max(len(value) // SAMPLES, 1)] if len(value) > SAMPLES else value
    flat = samples.reshape(len(samples), -1)
    stride = max(flat.shape[1] // FEATURES, 1)
    return flat[:, ::stride].float()


def is_readable(value: Tensor) -> bool:
    """Whether a tensor has plain numbers to look at."""
    plain = value.layout == torch.strided and not value.is_meta and not value.is_complex()
    return plain and value.numel() > 0


def batch_numbers(value: Tensor) -> Numbers:
    """Statistics of an input or target tensor, by metric name.

    Args:
        value: Any dtype, samples along the first dimension.
    """
    if not is_readable(value):
        return {}
    rows = table(value)
    good = rows[torch.isfinite(rows)]
    plain = rows.cpu().contiguous().numpy()
    out = {
        m.B_SIZE: float(value.shape[0]) if value.dim() else 1.0,
        m.B_NONFINITE: _nonfinite(value),
        m.B_FINGERPRINT: fingerprint(plain),
    }
    if good.numel() == 0:
        return out
    out |= _range(good)
    if value.is_floating_point():
        out |= _spread(rows, good)
        out[m.B_REPEATED] = repeated(plain)
        out[m.B_EVEN_AXIS] = float(even_axis(value))
    if _labels(value):
        out |= label_numbers(value)
    return out


def _nonfinite(value: Tensor) -> float:
    if not value.is_floating_point():
        return 0.0
    return float((~torch.isfinite(value)).sum())


def fingerprint(rows: Floats) -> float:
    """A number that is equal for equal batches (checksum of the sampled entries)."""
    return float(zlib.crc32(rows.tobytes()))


def repeated(rows: Floats) -> float:
    """Share of the samples that equal, bit for bit, an earlier one of the batch.

    0 where few values make up the samples (one-hot codes, places on a grid): equal ones are no
    accident there.
    """
    different = {row.tobytes(): row for row in rows}
    if len(different) == len(rows):
        return 0.0
    kinds = np.stack(list(different.values()))
    few = len(np.unique(kinds)) < FEW_VALUES * kinds.size
    return 0.0 if few else 1.0 - len(kinds) / len(rows)


def even_axis(value: Tensor) -> int:
    """The first axis along which no sample changes: frames that are all one frame, say.

    0 if there is none, or where a sample has one axis only. Short axes are not asked: a grey
    image comes with three equal channels.
    """
    if value.dim() < 3:
        return 0
    few = value.detach()[:EVEN_SAMPLES]
    asked = (a for a in range(1, few.dim()) if few.shape[a] > CHANNELS)
    return next((a for a in asked if _is_even(few, a)), 0)


def _is_even(few: Tensor, axis: int) -> bool:
    first, second = few.narrow(axis, 0, 1), few.narrow(axis, 1, 1)
    # Two entries tell nearly always, and the rest is not read.
    return torch.equal(first, second) and bool((few == first).all())


def _range(good: Tensor) -> Numbers:
    return {
        m.B_MEAN: float(good.mean()),
        m.B_STD: float(good.std(correction=0)),
        m.B_LOW: float(good.min()),
        m.B_HIGH: float(good.max()),
        m.B_ABSMAX: float(good.abs().max()),
    }


def _spread(rows: Tensor, good: Tensor) -> Numbers:
    scale = float(good.square().mean().sqrt())
    clean = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    feature = clean.square().mean(0).sqrt()
    live = feature[feature > 0]
    median = float(live.median()) if live.numel() else 0.0
    between = float(clean.std(0, correction=0).square().mean().sqrt())
    sample = clean.square().mean(1).sqrt()
    typical = float(sample.median())
    return {
        m.B_FEATURE_RMS: float(feature.max()),
        m.B_FEATURE_SPREAD: float(feature.max()) / median if median > 0 else 1.0,
        m.B_SAMPLE_STD: between / scale if scale > 0 else 0.0,
        m.B_OUTLIER: float(sample.max()) / typical if typical > 0 else 1.0,
    }


def _labels(value: Tensor) -> bool:
    if not value.is_floating_point():
        return value.dim() >= 1
    return value.dim() == 1 or (value.dim() == 2 and value.shape[-1] == 1)


def label_numbers(value: Tensor) -> Numbers:
    """Distinct values, majority share and order of a column of labels or targets."""
    labels = value.detach().reshape(-1)
    distinct, counts = torch.unique(labels, return_counts=True)
    out = {
        m.B_DISTINCT: float(min(len(distinct), DISTINCT)),
        m.B_MAJORITY: float(counts.max()) / max(labels.numel(), 1),
    }
    share = counts.double() / counts.sum()
    out[m.B_ENTROPY] = float(-(share * share.log()).sum())
    if labels.numel() > 1:
        out[m.B_TRANSITIONS] = float((labels[1:] != labels[:-1]).float().mean())
    return out


def prediction_numbers(value: Tensor) -> Numbers:
    """Statistics of the model's output: does it tell samples apart at all?"""
    if not is_readable(value):
        return {}
    rows = table(value)
    return {
        m.L_PRED_MEAN: float(rows.mean()),
        m.L_PRED_STD: float(rows.std(correction=0)),
        m.L_PRED_ABSMAX: float(rows.abs().max()),
        m.L_PRED_SAMPLE_STD: float(rows.std(0, correction=0).square().mean().sqrt()),
    }


def tensor_fact(value: Tensor) -> TensorFact:
    """Shape, dtype and range of a tensor at the loss."""
    shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
    if not is_readable(value):
        return TensorFact(shape, dtype)
    rows = table(value)
    good = rows[torch.isfinite(rows)]
    bad = int(_nonfinite(value))
    if good.numel() == 0:
        return TensorFact(shape, dtype, nonfinite=bad)
    return TensorFact(
        shape,
        dtype,
        low=float(good.min()),
        high=float(good.max()),
        mean=float(good.mean()),
        std=float(good.std(correction=0)),
        integral=bool((good == good.round()).all()),
        distinct=min(int(torch.unique(good).numel()), DISTINCT),
        sums_to_one=_sums_to_one(value),
        nonfinite=bad,
    )


def _sums_to_one(value: Tensor) -> bool:
    if value.dim() < 2 or not value.is_floating_point():
        return False
    value = value.detach().float()
    if not bool((value >= 0).all()):
        return False
    return any(
        value.shape[dim] > 1 and bool(((value.sum(dim) - 1).abs() < SUM_TOLERANCE).all())
        for dim in {1, value.dim() - 1}
    )
