"""Label smoothing, read off the graph of a cross-entropy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from neuraldbg.torch.loss import read_loss
from neuraldbg.torch.smoothing import smoothed

LABELS = torch.tensor([0, 1, 2, 3, 1, 0])


def scores(*shape: int) -> Tensor:
    """Logits that want a gradient."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_() * 1.0


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"ignore_index": 1}])
def test_the_two_terms_of_a_smoothed_loss_are_one(share: float, options: dict[str, object]) -> None:
    loss = functional.cross_entropy(scores(6, 4), LABELS, label_smoothing=share, **options)  # type: ignore[arg-type]
    fact = read_loss(loss, 0, None)
    assert fact.kind == "cross_entropy"
    (part,) = fact.parts
    assert part.kind == "nll"
    assert part.factor == 1.0
    assert part.smoothing == pytest.approx(share)
    assert part.classes == 4


def test_a_smoothed_loss_of_sequences_is_recognised() -> None:
    labels = LABELS.reshape(2, 3)
    loss = functional.cross_entropy(scores(2, 4, 3), labels, label_smoothing=0.1)
    (part,) = read_loss(loss * 0.5, 0, None).parts
    assert (part.factor, part.classes) == (0.5, 4)


def test_a_plain_loss_and_other_sums_are_not_smoothed() -> None:
    logits = scores(6, 4)
    plain = functional.cross_entropy(logits, LABELS)
    penalty = plain * 0.9 + logits.square().mean() * 0.1
    for loss in (plain, penalty, plain + plain):
        assert loss.grad_fn is not None
        assert smoothed(loss.grad_fn) is None
        assert all(p.smoothing == 0 for p in read_loss(loss, 0, None).parts)
