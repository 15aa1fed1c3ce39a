"""Losses that are written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from neuraldbg.torch.by_hand import by_hand
from neuraldbg.torch.loss import read_loss, target_of


def scores(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_() * 1.0


LABELS = torch.tensor([2, 0, 1, 1])
ONE_HOT = F.one_hot(LABELS, 3).float()
NUMBERS = torch.tensor([[1.0], [-2.0], [0.5], [4.0]])

DIFFERENCES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "pow": ("mse", lambda p: ((p - NUMBERS) ** 2).mean()),
    "square": ("mse", lambda p: (NUMBERS - p).square().mean()),
    "product": ("mse", lambda p: ((e := p - NUMBERS) * e).sum() / len(p)),
    "halved": ("mse", lambda p: 0.5 * (p - NUMBERS).pow(2).mean()),
    "absolute": ("l1", lambda p: (p - NUMBERS).abs().mean()),
    "norm": ("custom", lambda p: torch.linalg.vector_norm(p - NUMBERS, dim=1).mean()),
    "flat": ("mse", lambda p: ((p.squeeze(1) - NUMBERS.squeeze(1)) ** 2).mean()),
}
ENTROPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "one-hot": lambda p: -(ONE_HOT * p.log_softmax(-1)).sum(-1).mean(),
    "other-order": lambda p: -(p.log_softmax(-1) * ONE_HOT).sum(-1).mean(),
    "gather": lambda p: -p.log_softmax(-1).gather(1, LABELS[:, None]).mean(),
    "index": lambda p: -p.log_softmax(-1)[torch.arange(4), LABELS].mean(),
    "mixture": lambda p: (
        -torch.logsumexp(torch.stack([p.log_softmax(-1), (2 * p).log_softmax(-1)]) - math.log(2), 0)
        .gather(1, LABELS[:, None])
        .mean()
    ),
    "each weighed alike": lambda p: (
        torch.ones(4) * -p.log_softmax(-1).gather(1, LABELS[:, None]).squeeze(1)
    ).mean(),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_tells_its_kind_and_its_target(name: str) -> None:
    kind, loss = DIFFERENCES[name]
    output = scores(4, 1)
    value = loss(output)
    assert read_loss(value, 0, None, output).kind == kind
    target = target_of(value, output)
    assert target is not None
    torch.testing.assert_close(target.reshape(-1, 1), NUMBERS)


KEPT = torch.tensor([[1.0], [0.0], [1.0], [1.0]])
GRADES = torch.tensor([[1.0], [0.5], [1.0], [2.0]])
WEIGHED: dict[str, Callable[[Tensor], Tensor]] = {
    "graded": lambda p: (((p - NUMBERS) ** 2) * GRADES).sum() / GRADES.sum(),
    "chosen": lambda p: torch.where(
        KEPT.bool(), (p - NUMBERS) ** 2, torch.relu(NUMBERS - p) ** 2
    ).mean(),
    "one-of-two-terms": lambda p: (0.1 * p.exp() + (NUMBERS - p) ** 2).mean(),
    "scaled": lambda p: ((p - NUMBERS) ** 2 / p.detach().exp()).mean(),
}


@pytest.mark.parametrize("name", WEIGHED)
def test_a_weighed_difference_tells_its_target(name: str) -> None:
    output = scores(4, 1)
    value = WEIGHED[name](output)
    target = target_of(value, output)
    assert target is not None
    torch.testing.assert_close(target, NUMBERS)


@pytest.mark.parametrize("name", ["graded", "chosen", "one-of-two-terms"])
def test_a_weighed_difference_has_no_chance_level_of_its_own(name: str) -> None:
    output = scores(4, 1)
    assert read_loss(WEIGHED[name](output), 0, None, output).kind == "custom"


SERIES = torch.linspace(-2.0, 2.0, 4 * 5 * 2).reshape(4, 5, 2)
WITHIN = torch.arange(5) < torch.tensor([[5], [3], [2], [4]])
MASKED: dict[str, tuple[str, float, Callable[[Tensor], Tensor]]] = {
    "by-step": ("mse", 1, lambda p: _over_steps((p - SERIES) ** 2)),
    "of-all": ("l1", 0.7, lambda p: (WITHIN[..., None].float() * (SERIES - p).abs()).mean()),
    "per-entry": ("mse", 1, lambda p: (WITHIN[..., None] * (p - SERIES) ** 2).sum() / 28),
    "scaled": ("custom", 1, lambda p: 3 * _over_steps((p - SERIES) ** 2)),
}


def _over_steps(error: Tensor) -> Tensor:
    mask = WITHIN.float()
    return (error.mean(-1) * mask).sum() / mask.sum()


@pytest.mark.parametrize("name", MASKED)
def test_a_mean_over_what_a_mask_leaves_is_told_by_its_value(name: str) -> None:
    kind, scale, loss = MASKED[name]
    output = scores(20, 2).reshape(4, 5, 2)
    fact = read_loss(loss(output), 0, None, output)
    assert fact.kind == kind
    target = target_of(loss(output), output)
    assert target is not None
    if kind != "custom":
        torch.testing.assert_close(target, SERIES[WITHIN])
        assert [(p.kind, p.reduction, p.factor) for p in fact.parts] == [(kind, "mean", scale)]
        assert fact.reduction == "mean"


@pytest.mark.parametrize("name", ENTROPIES)
def test_a_cross_entropy_tells_its_labels(name: str) -> None:
    output = scores(4, 3)
    value = ENTROPIES[name](output)
    assert read_loss(value, 0, None, output).kind == "cross_entropy"
    target = target_of(value, output)
    assert target is not None
    assert target.tolist() == LABELS.tolist()


def test_an_output_that_is_not_finite_tells_no_target() -> None:
    output = scores(4, 1)
    broken = output * torch.tensor([[1.0], [float("nan")], [1.0], [1.0]])
    assert target_of(((broken - NUMBERS) ** 2).mean(), broken) is None


@pytest.mark.parametrize(("size", "told"), [(1e3, True), (1e9, False)])
def test_a_target_that_is_lost_in_the_rounding_is_not_told(size: float, told: bool) -> None:
    output = scores(4, 1) * size
    target = target_of((output - NUMBERS).square().mean(), output)
    assert (target is not None) is told


def test_targets_of_zero_are_no_rounding() -> None:
    output = scores(4, 1) * 1e3
    target = target_of((output - torch.zeros(4, 1)).square().mean(), output)
    assert target is not None
    assert not target.any()


def test_without_the_output_a_difference_keeps_its_kind_only() -> None:
    value = ((scores(4, 1) - NUMBERS) ** 2).mean()
    assert read_loss(value, 0, None).kind == "mse"
    assert target_of(value) is None


COUNTS = torch.tensor([[3.0, 0.0, 9.0], [1.0, 1.0, 4.0], [0.0, 2.0, 0.0], [5.0, 5.0, 5.0]])


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: -(COUNTS * p.log_softmax(-1)).sum(-1).mean(),
        lambda p: p.mean(),
        lambda p: (p * p).mean(),
        lambda p: p.exp().sum(),
        lambda p: (p.sigmoid() * ONE_HOT).mean(),
        lambda p: p.relu().abs().mean(),
    ],
)
def test_other_losses_are_not_taken_for_one(loss: Callable[[Tensor], Tensor]) -> None:
    output = scores(4, 3)
    value = loss(output)
    assert value.grad_fn is not None
    assert by_hand(value, output) is None
    assert read_loss(value, 0, None, output).kind == "custom"


def test_what_made_the_prediction_is_told() -> None:
    output = scores(4, 1).relu()
    assert read_loss(((output - NUMBERS) ** 2).mean(), 0, None, output).last_op == "Relu"
    classes = scores(4, 3).softmax(-1)
    hand = -(ONE_HOT * classes.log_softmax(-1)).sum(-1).mean()
    assert read_loss(hand, 0, None, classes).last_op == "Softmax"


def test_weights_of_classes_are_told() -> None:
    weight = torch.tensor([1.0, 2.0, 3.0])
    assert read_loss(F.cross_entropy(scores(4, 3), LABELS, weight), 0, None).weighted
    rare = F.binary_cross_entropy_with_logits(scores(4, 3), ONE_HOT, pos_weight=weight)
    assert read_loss(rare, 0, None).weighted
    assert not read_loss(F.cross_entropy(scores(4, 3), LABELS), 0, None).weighted


@pytest.mark.parametrize(
    ("weights", "uneven"), [([1.0, 1.0, 1.0, 1.0], False), ([3, 1, 1, 1], True)]
)
def test_samples_that_are_weighed_unequally_are_told(weights: list[float], uneven: bool) -> None:
    chosen = scores(4, 3).log_softmax(-1).gather(1, LABELS[:, None]).squeeze(1)
    fact = read_loss((torch.tensor(weights) * -chosen).mean(), 0, None)
    assert (fact.kind, fact.weighted) == ("cross_entropy", uneven)
