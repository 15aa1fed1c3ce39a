"""The statistics of one tensor, against NumPy in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuraldbg.torch.measure import (
    DOUBTFUL,
    PART,
    PEAKS,
    SIGMOID_FLAT,
    SUMS,
    TANH_FLAT,
    WHOLE,
    measure,
)


def read(value: torch.Tensor, axis: int | None = -1, flat: str | None = None) -> dict[str, float]:
    sums, peaks = measure(value, axis, flat)
    assert all(type(x) is float for x in (*sums, *peaks))
    return dict(zip((*SUMS, *PEAKS), (*sums, *peaks), strict=True))


tensors = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=5),
    elements=st.floats(-100, 100, width=16) | st.just(0.0),
)


@given(tensors, st.sampled_from([None, -1, 1]))
@settings(deadline=None)
def test_finite_tensors(array: np.ndarray, axis: int | None) -> None:
    got = read(torch.from_numpy(np.array(array)), axis)
    x = array.astype(np.float64)
    assert (got["calls"], got["count"], got["sampled"]) == (1, x.size, x.size)
    assert got["sum"] == pytest.approx(x.sum(), rel=1e-4, abs=1e-3)
    assert got["square"] == pytest.approx((x * x).sum(), rel=1e-4, abs=1e-30)
    assert got["zeros"] == (x == 0).sum()
    assert (got["high"], -got["negative_low"]) == (x.max(), x.min())
    assert got["nonfinite"] == got["flat"] == 0
    has_units = axis is not None and x.ndim >= 2
    units = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) if has_units else np.empty((0, 1))
    assert got["units"] == len(units)
    assert got["negative_units"] == (units.max(1) <= 0).sum()
    assert got["constant_units"] == (units.max(1) == units.min(1)).sum()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    got = read(torch.tensor([[1.0, -2.0], [0.0, 4.0]], dtype=dtype))
    assert (got["sum"], got["square"], got["zeros"]) == (3, 21, 1)
    large = read(torch.full((50_000,), 1000.0, dtype=torch.float16))
    assert large["square"] == pytest.approx(5e10, rel=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_counted(bad: float) -> None:
    got = read(torch.tensor([[1.0, bad], [bad, 2.0], [3.0, -1.0]]))
    assert got["nonfinite"] == 2
    peak = (got["high"], -got["negative_low"])
    assert all(map(math.isnan, peak)) if math.isnan(bad) else bad in peak


def test_infinities_that_cancel_are_counted() -> None:
    assert read(torch.tensor([math.inf, -math.inf, 1.0]))["nonfinite"] == 2
    big = torch.full((4,), 3e38)
    assert read(big)["nonfinite"] == 0  # only their sum is infinite


@pytest.mark.parametrize("value", [1e-30, 1e-22, 1e22, 1e30])
def test_squares_beyond_single_precision(value: float) -> None:
    assert read(torch.full((4,), value))["square"] == pytest.approx(4 * value**2, rel=1e-5)
    assert read(torch.zeros(4))["square"] == 0


def test_flat_regions() -> None:
    x = torch.tensor([-9.0, -3.0, 0.0, 3.0, 9.0])
    assert read(x.sigmoid(), flat="sigmoid")["flat"] == 2
    assert read(x.tanh(), flat="tanh")["flat"] == 4
    # The bounds are where the slope is under 6 per cent of its largest value.
    edge = 0.5 + SIGMOID_FLAT
    slopes = [edge * (1 - edge) / 0.25, 1 - TANH_FLAT**2]
    assert slopes == pytest.approx([0.06, 0.06], abs=0.002)


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        ([0.001, 0.5, 0.999], 2),  # a sigmoid: positive throughout
        ([-0.99, 0.5, 0.99], 2),  # a tanh
        ([0.0, 0.5, 0.999], 0),  # rectified values touch zero
        ([-0.99, 0.5, 1.5], 0),
        ([-2.0, 0.5, 0.99], 0),
    ],
)
def test_bounded_inputs_are_told_by_their_range(value: list[float], flat: int) -> None:
    assert read(torch.tensor(value), flat="bounded")["flat"] == flat


@pytest.mark.parametrize("axis", [None, -1])
def test_large_tensors_are_measured_in_part(axis: int | None) -> None:
    """Shares and squares come from a part; the mean and what is not finite are exact."""
    torch.manual_seed(0)
    x = torch.randn(12 * WHOLE // 8, 8).relu()
    got = read(x, axis)
    assert PART / 2 <= got["sampled"] < 2 * PART
    assert got["zeros"] / got["sampled"] == pytest.approx(0.5, abs=0.02)
    assert got["square"] / got["sampled"] == pytest.approx(0.5, abs=0.05)
    assert got["count"] == x.numel()
    assert got["sum"] == pytest.approx(x.double().sum().item(), rel=1e-5)
    for bad in (math.inf, math.nan):
        x[1, 1] = bad
        assert read(x, axis)["nonfinite"] == 1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("shape", [(512, 4096), (8, 64, 4096), (64, 256, 16, 16), (99_999, 2)])
def test_quiet_units_of_large_tensors(shape: tuple[int, ...], share: float) -> None:
    """Some are dead; the others are positive for one entry in twenty only, which is alive.

    The number is exact from one half of the units on, and an upper bound below one half.
    """
    torch.manual_seed(0)
    axis = 1 if len(shape) == 4 else -1
    x = (torch.rand(shape) - 0.95).relu()
    dead = int(share * shape[axis])
    x.movedim(axis, 0)[:dead] = 0.0
    x.movedim(axis, 0)[: dead // 2] = -3.0
    got = read(x, axis)
    assert got["units"] == shape[axis]
    for told in (got["negative_units"], got["constant_units"]):
        assert told == dead or dead < told < DOUBTFUL * shape[axis]


def test_layouts_do_not_matter() -> None:
    x = torch.randn(2, 3, 4, 5)
    for view in (x.transpose(0, 3), x.to(memory_format=torch.channels_last), x[:, ::2]):
        assert read(view, 1) == pytest.approx(read(view.contiguous().clone(), 1))


@pytest.mark.parametrize("size", [3, WHOLE])
def test_the_tensor_stays_as_it_is(size: int) -> None:
    x = torch.randn(size, 4, requires_grad=True)
    y = x * 2
    version, node, before = y._version, y.grad_fn, y.detach().clone()
    read(y, -1, "tanh")
    assert (y._version, y.grad_fn) == (version, node)
    assert torch.equal(y, before)
