"""What is read next to the optimizer step, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.torch.identity import ByTensor
from neuraldbg.torch.optimizer import SAMPLE, ParamLook, carried, norms_of

from .conftest import Observe
from .models import CASES, loss_of

Floats = NDArray[np.float64]
STEPS = 5


def copy(tensor: Tensor | None) -> Floats | None:
    return None if tensor is None else tensor.detach().double().numpy().copy().ravel()


class Books:
    """Gradients, weights before and after, copied around each step by the loop itself."""

    def __init__(self, model: nn.Module) -> None:
        self.params = dict(model.named_parameters())
        self.grads: list[dict[str, Floats | None]] = []
        self.weights: list[dict[str, Floats]] = [self.weight()]

    def weight(self) -> dict[str, Floats]:
        return {n: copy(p) for n, p in self.params.items()}

    def before(self) -> None:
        self.grads.append({n: copy(p.grad) for n, p in self.params.items()})

    def after(self) -> None:
        self.weights.append(self.weight())


def cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def check(record: Record, books: Books) -> None:
    for step in range(STEPS):
        for name in books.params:
            grad, old, new = (
                books.grads[step][name],
                books.weights[step][name],
                books.weights[step + 1][name],
            )

            def read(metric: str, name: str = name, step: int = step) -> float | None:
                series = record.series(Kind.PARAM, name, metric)
                found = series.values[series.steps == step]
                return float(found[0]) if len(found) else None

            assert read(m.P_GRAD_NONE) == float(grad is None)
            assert read(m.P_WEIGHT) == pytest.approx(np.linalg.norm(old), rel=1e-5)
            assert read(m.P_UPDATE) == pytest.approx(np.linalg.norm(new - old), rel=1e-3)
            assert read(m.P_STILL) == pytest.approx(np.mean(new == old), abs=1e-6)
            if np.linalg.norm(old):
                ratio = np.linalg.norm(new - old) / np.linalg.norm(old)
                assert read(m.P_RATIO) == pytest.approx(ratio, rel=1e-3)
            else:
                assert read(m.P_RATIO) is None
            if grad is None:
                assert read(m.P_GRAD) is read(m.P_ALIGN) is None
                continue
            assert read(m.P_GRAD) == pytest.approx(np.linalg.norm(grad), rel=1e-5)
            assert read(m.P_GRAD_NONFINITE) == 0
            assert read(m.P_ALIGN) == pytest.approx(cosine(old - new, grad), abs=1e-3)
            last = books.grads[step - 1][name] if step else None
            if last is not None:
                assert read(m.P_COSINE) == pytest.approx(cosine(last, grad), abs=1e-4)
            else:
                assert read(m.P_COSINE) is None


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_gradients_weights_and_updates(
    name: str, kind: str, closure: bool, observe: Observe
) -> None:
    model = CASES[name].make()
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    optimizer = OPTIMIZERS[kind](model.parameters())
    books = Books(model)

    def backward() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(CASES[name].batch()))
        loss.backward()
        books.before()
        return loss

    def loop() -> None:
        for _ in range(STEPS):
            if closure:
                optimizer.step(backward)
            else:
                backward()
                optimizer.step()
            books.after()

    check(observe(model, loop), books)


def test_large_parameters_are_judged_on_a_sample(observe: Observe) -> None:
    """The gradient's norm is exact; the rest is close."""
    model = nn.Linear(400, 300)
    assert model.weight.numel() > 4 * SAMPLE
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    books = Books(model)

    def loop() -> None:
        model(torch.randn(8, 400)).square().mean().backward()
        books.before()
        optimizer.step()
        books.after()

    record = observe(model, loop)
    grad, old, new = (x["weight"] for x in (books.grads[0], books.weights[0], books.weights[1]))
    read = {metric: record.series(Kind.PARAM, "weight", metric).values[0] for metric in
            (m.P_GRAD, m.P_WEIGHT, m.P_UPDATE)}  # fmt: skip
    assert read[m.P_GRAD] == pytest.approx(np.linalg.norm(grad), rel=1e-6)
    assert read[m.P_WEIGHT] == pytest.approx(np.linalg.norm(old), rel=0.02)
    assert read[m.P_UPDATE] == pytest.approx(np.linalg.norm(new - old), rel=0.1)


def test_double_precision_is_not_rounded(observe: Observe) -> None:
    """An update far below the rounding of single precision is an update."""
    model = nn.Linear(4, 4, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)

    def loop() -> None:
        model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
        optimizer.step()

    record = observe(model, loop)
    assert record.series(Kind.PARAM, "weight", m.P_STILL).values.tolist() == [0.0]
    assert record.series(Kind.PARAM, "weight", m.P_ALIGN).values[0] == pytest.approx(1, abs=1e-4)


def test_sparse_gradients(observe: Observe) -> None:
    model = nn.Embedding(9, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    norms = []

    def loop() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.tensor([1, 1, 3])).square().sum().backward()
            norms.append(float(model.weight.grad.to_dense().norm()))
            optimizer.step()

    record = observe(model, loop)
    assert record.series(Kind.PARAM, "weight", m.P_GRAD).values == pytest.approx(norms, rel=1e-6)
    still = record.series(Kind.PARAM, "weight", m.P_STILL).values
    assert still == pytest.approx([7 / 9] * 3)


def test_a_nonfinite_gradient_is_told(observe: Observe) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def loop() -> None:
        model(torch.full((1, 2), float("inf"))).sum().backward()
        optimizer.step()

    record = observe(model, loop)
    assert record.series(Kind.PARAM, "weight", m.P_GRAD_NONFINITE).values.tolist() == [1.0]
    assert record.series(Kind.PARAM, "bias", m.P_GRAD_NONFINITE).values.tolist() == [0.0]
    assert not np.isfinite(record.series(Kind.PARAM, "weight", m.P_GRAD).values[0])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
            st.integers(1, 40),
            st.floats(-3e4, 3e4, width=16),
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(deadline=None)
def test_norms_of_mixed_precision_neither_overflow_nor_change_places(
    parts: list[tuple[torch.dtype, int, float]],
) -> None:
    grads = [torch.full((n,), value, dtype=dtype) for dtype, n, value in parts]
    want = [np.linalg.norm(g.double().numpy()) for g in grads]
    assert [float(x) for x in norms_of(grads)] == pytest.approx(want, rel=1e-3, abs=1e-7)


def test_gradients_left_over_count_together() -> None:
    params = [nn.Parameter(torch.zeros(2, dtype=d)) for d in (torch.float32, torch.bfloat16)]
    assert carried(params) == 0
    params[0].grad = torch.tensor([3.0, 0.0])
    assert carried(params) == pytest.approx(3)
    params[1].grad = torch.tensor([0.0, 4.0], dtype=torch.bfloat16)
    assert carried(params) == pytest.approx(5)


def test_a_parameter_that_changes_its_shape_or_dies_is_not_compared() -> None:
    kept, gone = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    for p in (kept, gone):
        p.grad = torch.ones(2)
    look = ParamLook([kept, gone])
    look.before()
    kept.grad = None
    kept.data = torch.ones(5)
    values, present = look.after(ByTensor())
    assert present[0].sum() == 3  # the gradient: its norm, that there was one, that it is finite
    assert present[1].sum() > 3
    assert values[0, 0] == pytest.approx(2**0.5)
    del gone, p
    assert look.after(ByTensor()) is None
