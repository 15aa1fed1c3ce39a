"""Each fault does what it says, and nothing is left of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import LBFGS, SGD, Optimizer

from neuraldbg import NeuralDbg
from neuraldbg.errors import UsageError
from neuraldbg.testing import assert_explains, assert_healthy, inject

Fault = Callable[[nn.Module, Optimizer], contextlib.AbstractContextManager[Any]]


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


@pytest.fixture
def optimizer(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: nn.Module, optimizer: Optimizer, steps: int = 80) -> None:
    pixels, digits = load_digits(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32) / 8 - 1
    y = torch.tensor(digits)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


def diagnosed(model: nn.Module, optimizer: Optimizer, fault: Any) -> Any:
    with fault, NeuralDbg(model, optimizer) as dbg:
        train(model, optimizer)
    return dbg.diagnosis()


def test_without_a_fault_nothing_is_found(model: nn.Module, optimizer: Optimizer) -> None:
    assert_healthy(diagnosed(model, optimizer, contextlib.nullcontext()))


@pytest.mark.parametrize(
    ("cause", "fault"),
    [
        ("lr_too_high", lambda m, o: inject.scaled_lr(o, 1000)),
        ("nonfinite_input", lambda m, o: inject.nan_batch(m, at=30)),
        ("bad_bias_init", lambda m, o: inject.dead_units(m, "0")),
        ("missing_optimizer_step", lambda m, o: inject.lost_steps(o)),
        ("missing_zero_grad", lambda m, o: inject.kept_gradients(o, m)),
        ("wrong_update_sign", lambda m, o: inject.flipped_sign(o)),
        ("init_too_large", lambda m, o: inject.scaled_weights(m, 100)),
        ("broken_graph", lambda m, o: inject.detached(m, "0")),
    ],
)
def test_the_fault_is_explained_and_undone(
    model: nn.Sequential, optimizer: Optimizer, cause: str, fault: Fault
) -> None:
    settings = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert_explains(diagnosed(model, optimizer, fault(model, optimizer)), cause)
    left = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert left == settings
    assert "step" not in vars(optimizer)
    assert "zero_grad" not in {**vars(optimizer), **vars(model)}
    hooks = (x._forward_pre_hooks or x._forward_hooks for x in model.modules())
    assert not any(hooks)


def test_changed_values_come_back(model: nn.Sequential) -> None:
    before = [p.detach().clone() for p in model.parameters()]
    with inject.dead_units(model, "0"):
        assert (model[0].bias == inject.FAR_BELOW).all()
        with inject.scaled_weights(model, 3.0):
            assert torch.equal(model[2].weight, 3.0 * before[2])
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_nan_comes_once_and_only_in_training(model: nn.Sequential) -> None:
    x = torch.ones(2, 64)
    with inject.nan_batch(model, at=1):
        with torch.no_grad():
            assert model(x).isfinite().all()
        spoilt = [bool(model(x).isnan().any()) for _ in range(3)]
    assert spoilt == [False, True, False]
    assert x.isfinite().all()


def test_a_patched_method_comes_back(optimizer: Optimizer) -> None:
    def own() -> None: ...

    optimizer.step = own  # type: ignore[assignment]
    with inject.lost_steps(optimizer):
        assert optimizer.step is not own
    assert optimizer.step is own


def test_what_cannot_be_injected_is_told(model: nn.Sequential) -> None:
    words = nn.Embedding(5, 2)
    with inject.nan_batch(words), pytest.raises(UsageError, match="can hold a NaN"):
        words(torch.tensor([1]))
    with pytest.raises(UsageError, match="has no layer 'head'; it has 0, 1, 2"):
        inject.detached(model, "head").__enter__()
    with pytest.raises(UsageError, match="'1' has no bias"):
        inject.dead_units(model, "1").__enter__()
    with pytest.raises(UsageError, match="LBFGS has no setting maximize"):
        inject.flipped_sign(LBFGS(model.parameters())).__enter__()
