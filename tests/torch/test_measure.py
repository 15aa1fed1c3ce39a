"""Large tensors are measured on a part; what must be exact stays exact."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from neuraldbg.torch.measure import PART, PEAKS, SUMS, WHOLE, measure, part_of

SHAPES = [((64, 40, 96), -1), ((40, 16, 24, 24), 1), ((300_001,), None), ((8, 256, 64, 64), 1)]


def read(value: Tensor, axis: int | None, flat: str | None = None) -> dict[str, float]:
    sums, peaks = measure(value, axis, flat)
    return dict(zip((*SUMS, *PEAKS), map(float, (*sums, *peaks)), strict=True))


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_a_part_of_a_large_tensor_speaks_for_the_whole(
    shape: tuple[int, ...], axis: int | None
) -> None:
    value = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu()
    got = read(value, axis)
    assert value.numel() > WHOLE
    assert got["count"] == value.numel()
    assert got["sum"] == pytest.approx(float(value.double().sum()), rel=1e-5)
    assert got["square"] / got["sampled"] == pytest.approx(float(value.square().mean()), rel=0.1)
    assert got["zeros"] / got["sampled"] == pytest.approx(0.5, abs=0.05)
    assert got["units"] == (0 if axis is None else value.shape[axis])
    assert 2.5 < got["high"] <= float(value.max())


def test_units_of_a_large_tensor_are_all_seen() -> None:
    value = torch.randn(100, 50, 32).abs()
    value[..., :8] = 0.0
    got = read(value, -1)
    assert (got["negative_units"], got["constant_units"], got["units"]) == (8, 8, 32)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_entry_among_many_is_counted_and_shows_in_the_peaks(bad: float) -> None:
    value = torch.zeros(200_000)
    value[123_457] = bad
    got = read(value, None)
    assert got["nonfinite"] == 1
    assert not math.isfinite(got["high"]) or not math.isfinite(got["negative_low"])


@pytest.mark.parametrize(
    ("value", "kind", "share"),
    [
        (torch.tensor([0.999, 0.5]).repeat(100_000), "sigmoid", 0.5),
        (torch.tensor([-0.999, 0.5, 0.999, 0.1]).repeat(50_000), "tanh", 0.5),
        (torch.tensor([-0.999, 0.5, 0.999, 0.1]).repeat(50_000), "bounded", 0.5),
        (torch.tensor([0.999, 0.5]).repeat(100_000), "bounded", 0.5),
        (torch.tensor([0.0, 0.999]).repeat(100_000), "bounded", 0.0),
        (torch.tensor([3.0, 0.999]).repeat(100_000), "bounded", 0.0),
        (torch.tensor([0.999, 0.5]).repeat(100_000), None, 0.0),
    ],
)
def test_flat_regions_of_a_large_tensor(value: Tensor, kind: str | None, share: float) -> None:
    got = read(value, None, kind)
    assert got["flat"] / got["sampled"] == pytest.approx(share, abs=0.05)


def test_squares_beyond_the_range_of_float32_are_kept() -> None:
    got = read(torch.full((100_000,), 1e25), None)
    assert got["square"] / got["sampled"] == pytest.approx(1e50, rel=1e-3)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_the_part_is_small_and_the_same_of_tensors_and_arrays(
    shape: tuple[int, ...], axis: int | None
) -> None:
    value = torch.arange(math.prod(shape)).reshape(shape)
    part = part_of(value, axis)
    assert PART / 4 <= part.numel() <= WHOLE
    assert axis is None or part.shape[axis] == shape[axis]
    assert part.tolist() == part_of(value.numpy(), axis).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_large_tensors_of_other_types(dtype: torch.dtype) -> None:
    got = read(torch.full((100_000,), 0.5, dtype=dtype), None)
    assert got["square"] / got["sampled"] == pytest.approx(0.25)
    assert got["sum"] == pytest.approx(50_000)
