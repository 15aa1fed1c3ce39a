"""The divergence of normal distributions, read off its graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from neuraldbg.torch.parts import parts_of

N, CODE = 16, 4
TARGET = torch.randn(N, CODE, generator=torch.Generator().manual_seed(1))


def code() -> tuple[Tensor, Tensor]:
    """Means and logarithms of variances, both of a layer."""
    torch.manual_seed(0)
    mean, log_variance = torch.nn.Linear(5, 2 * CODE)(torch.randn(N, 5)).chunk(2, 1)
    return mean, log_variance


def written(mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp())


Loss = Callable[[Tensor, Tensor], Tensor]
DIVERGENCES: dict[str, tuple[str, Loss]] = {
    "by sample": ("mean_of_sums", lambda m, v: written(m, v).sum(1).mean()),
    "over the batch": ("normalised_sum", lambda m, v: written(m, v).sum() / N),
    "sum": ("sum", lambda m, v: -0.5 * torch.sum(1 + v - m**2 - torch.exp(v))),
    "product": ("mean", lambda m, v: 0.5 * (m * m + v.exp() - v - 1).mean()),
    "of torch": (
        "mean_of_sums",
        lambda m, v: kl_divergence(Normal(m, (0.5 * v).exp()), Normal(0, 1)).sum(-1).mean(),
    ),
}
OTHERS: dict[str, Loss] = {
    "squared error": lambda m, v: (m - TARGET).square().sum(1).mean(),
    "likelihood": lambda m, v: -Normal(m, v.exp()).log_prob(TARGET).mean(),
    "likelihood by hand": lambda m, v: (0.5 * (m - TARGET) ** 2 / v.exp() + 0.5 * v).mean(),
    "counts": lambda m, v: (m.exp() - TARGET.abs() * m).mean(),
    "logarithms": lambda m, v: (m.abs().log1p() - TARGET.abs().log1p()).square().mean(),
    "penalty": lambda m, v: m.square().mean(),
}


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_divergence_is_recognised_however_it_is_written(name: str) -> None:
    reduction, loss = DIVERGENCES[name]
    (part,) = parts_of(loss(*code()).grad_fn)
    assert (part.kind, part.reduction) == ("divergence", reduction)


@pytest.mark.parametrize("name", OTHERS)
def test_likelihoods_and_errors_are_none(name: str) -> None:
    (part,) = parts_of(OTHERS[name](*code()).grad_fn)
    assert part.kind == "custom"


def test_sums_over_a_sample_are_seen_under_a_further_term() -> None:
    mean, log_variance = code()
    error = (mean - TARGET).square().sum(1)
    loss = (error + 0.3 * written(mean, log_variance).sum(1)).mean()
    (part,) = parts_of(loss.grad_fn)
    assert (part.kind, part.reduction, part.entries) == ("custom", "mean_of_sums", N)


def test_what_a_sum_is_divided_by_is_kept() -> None:
    (part,) = parts_of(((code()[0] - TARGET).square().sum() / N).grad_fn)
    assert (part.reduction, part.count) == ("normalised_sum", N)
