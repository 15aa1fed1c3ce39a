"""The objective of a policy gradient, as it is written by hand and by `torch.distributions`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from neuraldbg.core.facts import LossPart
from neuraldbg.torch.parts import parts_of

N = 8
ACTIONS = torch.arange(N) % 3
REWARDS = torch.linspace(0.5, 2.0, N)
ADVANTAGES = REWARDS - REWARDS.mean()


def scores() -> Tensor:
    return torch.randn(N, 3, generator=torch.Generator().manual_seed(0)).requires_grad_() * 1.0


def chosen() -> Tensor:
    return Categorical(logits=scores()).log_prob(ACTIONS)


def part(loss: Tensor) -> LossPart:
    assert loss.grad_fn is not None
    return parts_of(loss.grad_fn)[0]


LOG_PROBABILITIES: dict[str, Callable[[], Tensor]] = {
    "categorical of logits": chosen,
    "categorical of probabilities": lambda: Categorical(scores().softmax(-1)).log_prob(ACTIONS),
    "gather": lambda: scores().log_softmax(-1).gather(1, ACTIONS[:, None]).squeeze(1),
    "index": lambda: scores().log_softmax(-1)[torch.arange(N), ACTIONS],
    "log of chosen": lambda: scores().softmax(-1).gather(1, ACTIONS[:, None]).log().squeeze(1),
    "normal": lambda: Normal(scores()[:, 0], 0.5).log_prob(REWARDS),
    "several normal": lambda: Independent(Normal(scores(), 1.0), 1).log_prob(torch.ones(N, 3)),
}


@pytest.mark.parametrize("name", LOG_PROBABILITIES)
def test_a_weighed_log_probability_is_a_policys(name: str) -> None:
    objective = (LOG_PROBABILITIES[name]() * REWARDS).mean()
    assert part(objective) == LossPart("policy", "mean", 1.0, N, pytest.approx(1.0))
    assert part(-objective) == LossPart("policy", "mean", -1.0, N, pytest.approx(1.0))


SIGNS: dict[str, tuple[Callable[[], Tensor], float]] = {
    "before": (lambda: (-chosen() * REWARDS).sum(), -1.0),
    "outside of the product": (lambda: (-(chosen() * REWARDS)).mean(), -1.0),
    "twice": (lambda: -(-chosen() * REWARDS).mean(), 1.0),
    "scaled": (lambda: 0.5 * (chosen() * REWARDS).mean(), 0.5),
    "with another term": (lambda: (chosen() * REWARDS).mean() - scores().pow(2).mean(), 1.0),
    "joined": (
        lambda: torch.stack([-p * r for p, r in zip(chosen(), REWARDS, strict=True)]).sum(),
        -1.0,
    ),
    "joined before": (lambda: (torch.stack(list(chosen())) * REWARDS).sum(), 1.0),
}


@pytest.mark.parametrize("name", SIGNS)
def test_every_minus_sign_counts(name: str) -> None:
    loss, factor = SIGNS[name]
    found = part(loss())
    assert (found.kind, found.factor) == ("policy", factor)
    assert found.lean == pytest.approx(1.0)


def test_the_weights_tell_whether_they_are_costs() -> None:
    assert part((chosen() * -REWARDS).mean()).lean == pytest.approx(-1.0)
    assert part((chosen() * ADVANTAGES).mean()).lean == pytest.approx(0.0, abs=1e-6)
    joined = torch.stack([p * a for p, a in zip(chosen(), ADVANTAGES, strict=True)])
    assert part(joined.mean()).lean == pytest.approx(0.0, abs=1e-6)
    assert part((chosen() * torch.zeros(N)).mean()).lean == 0.0
    masked = (chosen() * ADVANTAGES * (ADVANTAGES > 0).float()).mean()
    assert part(masked).lean == pytest.approx(1.0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda: chosen().mean(),
        lambda: (chosen() * 5.0).mean(),
        lambda: (chosen() * chosen().exp()).mean(),
        lambda: (scores() * ADVANTAGES[:, None]).mean(),
        lambda: (scores().log_softmax(-1) * ADVANTAGES[:, None]).sum(),
    ],
)
def test_other_sums_are_none(loss: Callable[[], Tensor]) -> None:
    assert part(loss()).kind == "custom"
