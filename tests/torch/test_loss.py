"""What the autograd graph of a loss tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.core.facts import LossFact, TensorFact
from neuraldbg.torch.loss import leaves, read_loss, target_of

N, C = 6, 4


def rows() -> Tensor:
    """What a model's last layer makes: (N, C), not a leaf."""
    return nn.Linear(3, C)(torch.randn(N, 3))


def fact(loss: Tensor) -> LossFact:
    return read_loss(loss, 0, None)


def labels() -> Tensor:
    return torch.arange(N) % C


KINDS: dict[str, tuple[Callable[[], Tensor], str, str | None]] = {
    "cross entropy": (lambda: F.cross_entropy(rows(), labels()), "Addmm", "mean"),
    "summed": (lambda: F.cross_entropy(rows(), labels(), reduction="sum"), "Addmm", "sum"),
    "module": (lambda: nn.CrossEntropyLoss()(rows(), labels()), "Addmm", "mean"),
    "after softmax": (
        lambda: F.cross_entropy(rows().softmax(1), labels()),
        "Softmax",
        "mean",
    ),
    "after relu": (lambda: F.cross_entropy(rows().relu(), labels()), "Relu", "mean"),
    "tokens": (
        lambda: F.cross_entropy(rows().view(2, 3, C).transpose(1, 2), labels().view(2, 3)),
        "Addmm",
        "mean",
    ),
    "averaged by hand": (
        lambda: F.cross_entropy(rows(), labels(), reduction="none").mean(),
        "Addmm",
        "mean",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_cross_entropy(name: str) -> None:
    make, last, reduction = KINDS[name]
    found = fact(make())
    assert (found.kind, found.last_op, found.reduction) == ("cross_entropy", last, reduction)
    assert found.target is not None
    assert (found.target.dtype, found.target.integral) == ("int64", True)
    assert found.batch in (N, 2)


OTHERS: dict[str, Callable[[], Tensor]] = {
    "nll": lambda: F.nll_loss(rows().softmax(1), labels()),
    "bce": lambda: F.binary_cross_entropy(rows().sigmoid(), torch.ones(N, C)),
    "bce_with_logits": lambda: F.binary_cross_entropy_with_logits(rows(), torch.ones(N, C)),
    "mse": lambda: F.mse_loss(rows(), torch.zeros(N, C)),
    "l1": lambda: F.l1_loss(rows(), torch.zeros(N, C)),
    "smooth_l1": lambda: F.smooth_l1_loss(rows(), torch.zeros(N, C)),
    "custom": lambda: rows().exp().mean(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_losses(kind: str) -> None:
    found = fact(OTHERS[kind]())
    assert (found.kind, found.reduction) == (kind, "mean")
    assert found.broadcast is None
    assert "Addmm" in found.ops


def test_the_activation_before_the_loss() -> None:
    assert fact(OTHERS["bce"]()).last_op == "Sigmoid"
    assert fact(OTHERS["nll"]()).last_op == "Softmax"
    assert fact(OTHERS["mse"]()).last_op == "Addmm"
    assert fact(F.nll_loss(rows().log_softmax(1), labels())).last_op == "Addmm"


def test_prediction_and_target() -> None:
    x = rows()
    found = fact(F.mse_loss(x, torch.full((N, C), 3.0)))
    assert found.prediction == TensorFact(
        (N, C),
        "float32",
        low=x.min().item(),
        high=x.max().item(),
        mean=pytest.approx(x.mean().item()),
        std=pytest.approx(x.std(correction=0).item()),
        integral=False,
        distinct=N * C,
        sums_to_one=False,
    )
    assert (found.target.low, found.target.high, found.target.distinct) == (3, 3, 1)
    assert found.batch == N
    seen = TensorFact((N, 9), "float32")
    assert read_loss(F.mse_loss(x, x.detach()), 1, seen).prediction is seen
    assert fact(F.binary_cross_entropy(x.softmax(1), torch.ones(N, C))).prediction.sums_to_one


def test_the_target_where_it_was_kept() -> None:
    y = labels()
    assert torch.equal(target_of(F.cross_entropy(rows(), y)), y)
    assert torch.equal(target_of(2 * F.cross_entropy(rows(), y) + 1), y)
    assert target_of((rows() - 1).sum()) is None
    assert target_of(torch.tensor(1.0)) is None


def column() -> Tensor:
    return nn.Linear(3, 1)(torch.randn(N, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda: F.mse_loss(column(), torch.ones(N)),
        lambda: ((column() - torch.ones(N)) ** 2).mean(),
        lambda: (column() - torch.ones(N)).abs().mean(),
        lambda: F.l1_loss(column(), torch.ones(N)),
        lambda: F.smooth_l1_loss(column(), torch.ones(N)),
        lambda: F.huber_loss(column(), torch.ones(N)),
        lambda: ((torch.ones(N) - column()) ** 2).mean(),
        lambda: (column().squeeze(1).square() / column().exp()).mean(),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_shapes_that_grow_into_each_other(make: Callable[[], Tensor]) -> None:
    assert set(fact(make()).broadcast) == {(N, 1), (N,)}


@pytest.mark.parametrize(
    "make",
    [
        lambda: F.l1_loss(maps(), torch.ones(N, 5, 5)),
        lambda: F.mse_loss(maps().squeeze(1), torch.ones(N, 1, 5, 5)),
        lambda: (maps() - torch.ones(N, 5, 5)).square().mean(),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_maps_that_are_compared_with_those_of_every_other_sample(
    make: Callable[[], Tensor],
) -> None:
    assert set(fact(make()).broadcast) == {(N, 1, 5, 5), (N, 5, 5)}


def maps() -> Tensor:
    return nn.Conv2d(1, 1, 1)(torch.randn(N, 1, 5, 5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: (rows()[:, None] - rows()[None]).square().sum(-1).mean(),
        lambda: F.mse_loss(rows()[:, None].expand(N, N, C), torch.ones(N, N, C)),
        lambda: F.mse_loss(column(), torch.ones(N, 1)),
        lambda: F.mse_loss(column().squeeze(1), torch.ones(N)),
        lambda: ((column() - 1) ** 2).mean(),
        lambda: (rows() * torch.ones(C)).square().mean(),
        lambda: (rows() - rows().mean(0)).square().mean(),
        lambda: (rows() - rows().mean(1, keepdim=True)).square().mean(),
        lambda: F.cross_entropy(rows() @ rows().T, torch.arange(N)),
        lambda: _divided(square()).log().mean(),
        lambda: (square() - square().amax(1, keepdim=True)).mean(),
    ],
)
def test_shapes_that_are_meant_to_grow(make: Callable[[], Tensor]) -> None:
    assert fact(make()).broadcast is None


def square() -> Tensor:
    return nn.Linear(3, N)(torch.randn(N, 3)).exp()


def _divided(parts: Tensor) -> Tensor:
    return parts / parts.sum(1, keepdim=True)


def test_shapes_that_grow_are_seen_on_any_output_of_a_compiled_graph() -> None:
    both = nn.Linear(3, 1)

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return both(x), both(x).squeeze(-1)

    _, flat = torch.compile(forward, backend="aot_eager")(torch.randn(N, 3))
    assert set(fact((flat - torch.ones(N, 1)).square().mean()).broadcast) == {(N, 1), (N,)}


def test_a_loss_without_a_graph() -> None:
    found = fact(torch.tensor(1.0))
    assert (found.kind, found.ops, found.parts) == ("constant", (), ())


@pytest.mark.parametrize("after", ["nothing", "divided", "added"])
def test_a_compiled_loss(after: str, fresh_dynamo: Any) -> None:
    model = nn.Linear(3, C)

    @torch.compile(backend="aot_eager")
    def compute(x: Tensor) -> Tensor:
        return F.cross_entropy(model(x), labels())

    loss = compute(torch.randn(N, 3))
    if after == "divided":
        loss = loss / 4
    elif after == "added":
        loss = loss + 0.1 * sum(p.square().sum() for p in model.parameters())
    assert fact(loss).kind == "compiled"
    assert {id(x) for x in leaves(loss.grad_fn)} == {id(p) for p in model.parameters()}


def test_a_loss_on_a_compiled_model_shows(fresh_dynamo: Any) -> None:
    model = torch.compile(nn.Linear(3, C), backend="aot_eager")
    assert fact(F.cross_entropy(model(torch.randn(N, 3)), labels())).kind == "cross_entropy"
    assert fact(model(torch.randn(N, 3)).square().mean()).kind == "custom"


def test_what_a_loss_reaches() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    x = model[2](model[1](model[0](torch.randn(2, 3)).detach()))
    reached = {id(p) for p in leaves(x.sum().grad_fn)}
    assert reached == {id(p) for p in (*model[1].parameters(), *model[2].parameters())}


def test_a_deep_graph_is_walked_without_recursion() -> None:
    w = torch.ones(1, requires_grad=True)
    x = w
    for _ in range(3000):
        x = x + 1
    assert leaves(x.grad_fn)[0] is w
    assert len(fact(x.sum()).ops) == 64


def test_a_graph_that_was_used_up_tells_what_is_left() -> None:
    loss = F.cross_entropy(rows(), labels())
    loss.backward()
    found = fact(loss)
    assert (found.kind, found.target) == ("cross_entropy", None)


@pytest.mark.parametrize(
    ("loss", "weighted"),
    [
        (lambda: F.cross_entropy(rows(), labels(), weight=torch.arange(1.0, C + 1)), True),
        (lambda: F.cross_entropy(rows(), labels()), False),
        (
            lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor(9.0))(rows(), torch.ones(N, C)),
            True,
        ),
        (lambda: nn.BCEWithLogitsLoss()(rows(), torch.ones(N, C)), False),
        (lambda: F.mse_loss(rows(), torch.ones(N, C)), False),
    ],
)
def test_weights_of_the_classes_are_seen(loss: Callable[[], Tensor], weighted: bool) -> None:
    assert fact(loss()).weighted is weighted


def ones(*counts: int) -> Tensor:
    """A row of zeros and as many ones for each count."""
    return torch.stack([(torch.arange(C) < n).float() for n in counts])


@pytest.mark.parametrize("counts", [(0, 1, 2, 4, 0, 1), (1, 1, 1, 1, 1, 1)])
def test_how_many_ones_a_softmax_is_given_for_a_sample(counts: tuple[int, ...]) -> None:
    want = (min(counts), max(counts))
    target = ones(*counts)
    other = F.mse_loss(rows(), torch.zeros(N, C))
    assert fact(F.cross_entropy(rows(), target)).ones == want
    assert fact(other + 0.1 * F.cross_entropy(rows(), target)).ones == want
    assert fact(-(rows().log_softmax(1) * target).sum(1).mean()).ones == want


def test_probabilities_and_classes_are_no_ones() -> None:
    assert fact(F.cross_entropy(rows(), torch.rand(N, C).softmax(1))).ones is None
    assert fact(F.cross_entropy(rows(), labels())).ones is None


def test_labels_that_the_loss_leaves_out_are_left_out() -> None:
    padded = torch.tensor([-100, 2, -100, 0, 1, -100])
    loss = F.cross_entropy(rows(), padded)
    target = target_of(loss)
    assert target is not None
    assert target.tolist() == [2, 0, 1]
    assert fact(loss).batch == N
    other = torch.where(padded < 0, 3, padded)
    assert target_of(F.cross_entropy(rows(), other, ignore_index=3)).tolist() == [2, 0, 1]
    nothing = torch.full((N,), -100)
    assert target_of(F.cross_entropy(rows(), nothing, reduction="sum")) is not None
