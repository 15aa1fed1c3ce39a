"""How sharply attention looks, read off the autograd graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from neuraldbg.torch.attention import peaks


def attend(scale: float, entries: int = 16) -> Tensor:
    """A loss behind one attention whose logits have this standard deviation."""
    torch.manual_seed(0)
    query, key = torch.randn(8, 5, 4, requires_grad=True), torch.randn(8, entries, 4)
    weights = (scale * query @ key.transpose(1, 2) / 2).softmax(-1)
    return (weights @ torch.randn(8, entries, 3)).square().mean()


def test_the_sharper_the_logits_the_higher_the_peak() -> None:
    (even,), (usual,), (sharp,) = (peaks(attend(s)) for s in (0.0, 1.0, 40.0))
    assert even == pytest.approx(1 / 16)
    assert 0.1 < usual < 0.6
    assert sharp > 0.9


def test_gates_written_as_products_count_and_classes_do_not() -> None:
    scores = torch.randn(6, 5, requires_grad=True)
    assert len(peaks((scores.softmax(1) * torch.randn(6, 5)).sum())) == 1
    assert peaks(F.nll_loss(scores.softmax(1).log(), torch.zeros(6, dtype=torch.long))) == []
    assert peaks(F.cross_entropy(scores, torch.zeros(6, dtype=torch.long))) == []


def test_a_temperature_is_no_gate_and_hides_none() -> None:
    scores, weight = torch.randn(6, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    assert peaks(F.linear(scores.softmax(1) * 4, weight, torch.zeros(3)).sum()) == []
    values = torch.randn(6, 5, requires_grad=True)
    assert len(peaks((4 * scores.softmax(1) * values).sum())) == 1


def test_a_choice_of_three_is_no_attention() -> None:
    assert peaks(attend(40.0, entries=3)) == []


def test_a_loss_without_a_graph_has_none() -> None:
    assert peaks(torch.tensor(1.0)) == []
