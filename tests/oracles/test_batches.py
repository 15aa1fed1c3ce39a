"""Statistics of batches, labels and predictions, against NumPy in double precision."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from neuraldbg.core import metrics as m
from neuraldbg.torch import data

Array = NDArray[np.float32]

batches = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6),
    elements=st.floats(-1000, 1000, width=16),
)
settings.register_profile("calm", deadline=None, max_examples=60)
settings.load_profile("calm")


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-4, abs=1e-4)


@given(batches)
def test_batches(array: Array) -> None:
    got = data.batch_numbers(torch.from_numpy(array.copy()))
    x = array.astype(np.float64)
    rows = x.reshape(len(x), -1)
    feature, sample = np.sqrt((rows**2).mean(0)), np.sqrt((rows**2).mean(1))
    assert got[m.B_SIZE] == len(x)
    assert got[m.B_NONFINITE] == 0
    assert got[m.B_MEAN] == near(x.mean())
    assert got[m.B_STD] == near(x.std())
    assert (got[m.B_LOW], got[m.B_HIGH]) == (x.min(), x.max())
    assert got[m.B_ABSMAX] == np.abs(x).max()
    assert got[m.B_FEATURE_RMS] == near(feature.max())
    if (x != 0).any():
        spread = np.sqrt((rows.std(0) ** 2).mean()) / np.sqrt((x**2).mean())
        assert got[m.B_SAMPLE_STD] == pytest.approx(spread, rel=1e-3, abs=1e-3)
    middle = float(np.sort(sample)[(len(sample) - 1) // 2])
    if middle > 1e-3:
        assert got[m.B_OUTLIER] == pytest.approx(sample.max() / middle, rel=1e-3)


@given(hnp.arrays(np.int64, st.integers(1, 50), elements=st.integers(-3, 5)))
def test_labels(array: NDArray[np.int64]) -> None:
    got = data.batch_numbers(torch.from_numpy(array.copy()))
    counts = Counter(array.tolist())
    shares = [n / len(array) for n in counts.values()]
    assert got[m.B_DISTINCT] == len(counts)
    assert got[m.B_MAJORITY] == pytest.approx(max(shares))
    assert got[m.B_ENTROPY] == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-9)
    if len(array) > 1:
        assert got[m.B_TRANSITIONS] == pytest.approx(np.mean(array[1:] != array[:-1]))


@given(batches)
def test_predictions(array: Array) -> None:
    got = data.prediction_numbers(torch.from_numpy(array.copy()))
    x = array.astype(np.float64)
    rows = x.reshape(len(x), -1)
    assert got[m.L_PRED_MEAN] == near(x.mean())
    assert got[m.L_PRED_STD] == near(x.std())
    assert got[m.L_PRED_ABSMAX] == np.abs(x).max()
    between = np.sqrt((rows.std(0) ** 2).mean())
    assert got[m.L_PRED_SAMPLE_STD] == pytest.approx(between, rel=1e-3, abs=1e-3)


@given(batches, st.sampled_from([float("nan"), float("inf"), float("-inf")]), st.data())
def test_what_is_not_finite_is_counted_and_left_out(
    array: Array, bad: float, choose: st.DataObject
) -> None:
    places = choose.draw(st.sets(st.integers(0, array.size - 1), min_size=1))
    array = array.copy()
    array.ravel()[list(places)] = bad
    got = data.batch_numbers(torch.from_numpy(array))
    fact = data.tensor_fact(torch.from_numpy(array))
    good = array[np.isfinite(array)]
    assert got[m.B_NONFINITE] == fact.nonfinite == len(places)
    if len(good):
        assert got[m.B_LOW] == fact.low == good.min()
        assert got[m.B_MEAN] == near(good.astype(np.float64).mean())
        assert fact.distinct == len(np.unique(good))
        assert fact.integral == bool((good == np.round(good)).all())
    else:
        assert m.B_MEAN not in got
        assert fact.low is None


@given(batches, batches)
def test_equal_batches_have_equal_fingerprints(a: Array, b: Array) -> None:
    prints = [data.batch_numbers(torch.from_numpy(x.copy()))[m.B_FINGERPRINT] for x in (a, a, b)]
    assert prints[0] == prints[1]
    if a.size == b.size and not np.array_equal(a.ravel(), b.ravel()):
        assert prints[0] != prints[2]


@pytest.mark.parametrize(
    ("shape", "dim", "mark"),
    [((5, 4), 1, True), ((5, 4, 3), 1, True), ((5, 4, 3), 2, True), ((5, 4, 3), 0, False)],
)
def test_probabilities_are_recognised_along_the_last_or_the_channel_dimension(
    shape: tuple[int, ...], dim: int, mark: bool
) -> None:
    torch.manual_seed(0)
    logits = torch.randn(shape)
    assert data.tensor_fact(logits.softmax(dim)).sums_to_one is mark
    assert not data.tensor_fact(logits).sums_to_one
    assert not data.tensor_fact(logits.softmax(dim) * 1.1).sums_to_one
    assert data.tensor_fact(logits.softmax(dim).half()).sums_to_one is mark


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(3, 2, dtype=torch.complex64),
        torch.ones(3, 2).to_sparse(),
        torch.ones(3, 2, device="meta"),
        torch.ones(3, 2, 0),
    ],
    ids=["complex", "sparse", "meta", "empty"],
)
def test_what_has_no_plain_numbers_is_left_alone(value: torch.Tensor) -> None:
    assert data.batch_numbers(value) == data.prediction_numbers(value) == {}
    assert data.tensor_fact(value).shape == tuple(value.shape)


def test_large_batches_are_thinned() -> None:
    torch.manual_seed(0)
    big = torch.randn(3 * data.SAMPLES, 5 * data.FEATURES)
    rows = data.table(big)
    assert len(rows) <= 2 * data.SAMPLES
    assert rows.shape[1] <= 2 * data.FEATURES
    assert data.batch_numbers(big)[m.B_STD] == pytest.approx(1, rel=0.01)
    big[-1, -1] = float("nan")
    assert data.batch_numbers(big)[m.B_NONFINITE] == 1


@pytest.mark.parametrize("value", [torch.tensor(3.0), torch.tensor([True]), torch.ones(1, 1)])
def test_odd_shapes(value: torch.Tensor) -> None:
    got = data.batch_numbers(value)
    assert got[m.B_SIZE] == (len(value) if value.dim() else 1)
    assert data.tensor_fact(value).shape == tuple(value.shape)
