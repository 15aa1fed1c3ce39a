"""The terms that a loss adds up."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from neuraldbg.core.facts import LossPart
from neuraldbg.torch.parts import PARTS, parts_of

N, C = 6, 4


def x() -> Tensor:
    return torch.rand(N, C, requires_grad=True) * 2


def parts(loss: Tensor) -> list[LossPart]:
    return list(parts_of(loss.grad_fn))


def mse() -> Tensor:
    return F.mse_loss(x(), torch.zeros(N, C))


def kl() -> Tensor:
    """Summed over features, then averaged over samples."""
    return x().log().sum(1).mean()


CASES: dict[str, tuple[Callable[[], Tensor], list[LossPart]]] = {
    "one": (mse, [LossPart("mse", "mean", 1.0, N * C)]),
    "summed": (
        lambda: F.mse_loss(x(), torch.zeros(N, C), reduction="sum"),
        [LossPart("mse", "sum", 1.0, N * C)],
    ),
    "scaled": (lambda: 0.5 * mse(), [LossPart("mse", "mean", 0.5, N * C)]),
    "scaled twice": (lambda: (mse() * 4) / 2, [LossPart("mse", "mean", 2.0, N * C)]),
    "subtracted": (
        lambda: mse() - 3 * kl(),
        [LossPart("mse", "mean", 1.0, N * C), LossPart("custom", "mean_of_sums", -3.0, N)],
    ),
    "in a row": (
        lambda: torch.stack([mse(), kl()]).mean(),
        [LossPart("mse", "mean", 0.5, N * C), LossPart("custom", "mean_of_sums", 0.5, N)],
    ),
    "in a row, weighed": (
        lambda: (torch.tensor([1.0, 3.0]) * torch.stack([mse(), kl()])).sum(),
        [LossPart("mse", "mean", None, N * C), LossPart("custom", "mean_of_sums", None, N)],
    ),
    "samples in a row": (
        lambda: torch.stack([x()[0].square(), x()[1]]).sum(),
        [LossPart("custom", "sum", 1.0, 2 * C)],
    ),
    "negated": (lambda: -mse(), [LossPart("mse", "mean", -1.0, N * C)]),
    "by hand": (lambda: x().square().mean(), [LossPart("custom", "mean", 1.0, N * C)]),
    "sum by hand": (lambda: x().square().sum(), [LossPart("custom", "sum", 1.0, N * C)]),
    "normalised": (
        lambda: x().square().sum() / N,
        [LossPart("custom", "normalised_sum", 1.0, N * C)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_terms(name: str) -> None:
    make, want = CASES[name]
    got = parts(make())
    assert [p.factor for p in got] == pytest.approx([p.factor for p in want])
    assert [(p.kind, p.reduction, p.entries) for p in got] == [
        (p.kind, p.reduction, p.entries) for p in want
    ]


def test_a_learned_weight_is_no_constant() -> None:
    weight = torch.tensor(2.0, requires_grad=True)
    (part,) = parts(weight * mse())
    assert (part.kind, part.factor) == ("mse", None)


def test_a_division_by_zero_is_an_infinite_factor() -> None:
    (part,) = parts(mse() / 0.0)
    assert part.factor == math.inf


def test_no_more_than_so_many() -> None:
    assert len(parts(sum(mse() for _ in range(3 * PARTS)))) <= PARTS


@pytest.mark.parametrize("error", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_the_spread_of_the_targets_of_each_error(error: Callable[..., Tensor]) -> None:
    targets = [3.0 * torch.randn(N, C), 1e-6 * torch.randn(N, C)]
    got = parts(error(x(), targets[0]) + error(x(), targets[1]))
    want = [float(t.std(correction=0)) for t in targets]
    assert [p.spread for p in got] == pytest.approx(want, rel=1e-5)


def test_classes_and_targets_that_are_not_finite_have_no_spread() -> None:
    (classes,) = parts(F.cross_entropy(x(), torch.zeros(N, dtype=torch.int64)))
    (broken,) = parts(F.mse_loss(x(), torch.full((N, C), math.inf)))
    assert classes.spread is broken.spread is None
