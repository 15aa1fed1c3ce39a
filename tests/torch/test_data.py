"""Statistics of a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neuraldbg.core import metrics as m
from neuraldbg.torch.data import batch_numbers, even_axis, repeated

RANDOM = np.random.default_rng(0)


def test_copies_of_measured_samples_are_counted() -> None:
    few = RANDOM.normal(size=(4, 5)).astype(np.float32)
    assert repeated(few[np.arange(32) % 4]) == pytest.approx(1 - 4 / 32)
    assert repeated(few) == 0.0
    assert batch_numbers(torch.tensor(few[np.arange(32) % 4]))[m.B_REPEATED] == 1 - 4 / 32


def test_samples_of_few_values_are_equal_by_their_nature() -> None:
    one_hot = np.eye(8, dtype=np.float32)[np.arange(64) % 8]
    assert repeated(one_hot) == 0.0
    position = (np.arange(24) % 5 / 5).astype(np.float32)
    goal = np.sign(np.arange(24) % 2 - 0.5).astype(np.float32)
    assert repeated(np.stack([position, goal, np.ones(24, np.float32)], 1)) == 0.0


def test_labels_have_no_copies() -> None:
    assert m.B_REPEATED not in batch_numbers(torch.arange(8))


@pytest.mark.parametrize(
    ("value", "axis"),
    [
        (torch.randn(4, 1, 6, 8, 8), 0),
        (torch.randn(4, 1, 1, 8, 8).expand(-1, -1, 6, -1, -1), 2),
        (torch.randn(4, 1, 8, 8).expand(-1, 3, -1, -1), 0),
        (torch.randn(4, 12, 1).expand(-1, -1, 7), 2),
        (torch.randn(4, 1).expand(-1, 7), 0),
        (torch.cat([torch.randn(4, 1, 3).expand(-1, 9, -1), torch.randn(4, 1, 3)], 1), 0),
        (torch.full((4, 9, 3), float("nan")), 0),
        (torch.randn(4), 0),
        (torch.tensor(2.0), 0),
    ],
)
def test_an_axis_along_which_nothing_changes_is_told(value: torch.Tensor, axis: int) -> None:
    assert even_axis(value) == axis
