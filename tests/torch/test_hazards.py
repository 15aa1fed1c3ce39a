"""Operations that make NaN or infinity, found before they do it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Kind
from neuraldbg.store.reader import RunFile
from neuraldbg.torch.hazards import hazards
from neuraldbg.torch.seen import LossSide


def tensor(*values: float) -> Tensor:
    """A tensor in the middle of a graph."""
    return torch.tensor(values, dtype=torch.float32, requires_grad=True) * 1


BAD: dict[str, tuple[Callable[[], Tensor], str]] = {
    "Log": (lambda: tensor(1, 0).log(), "1 zero and 0 negative of 2 entries"),
    "Log2": (lambda: tensor(1, -1).log2(), "0 zero and 1 negative of 2 entries"),
    "Log10": (lambda: tensor(0, -1, 2).log10(), "1 zero and 1 negative of 3 entries"),
    "Sqrt": (lambda: tensor(0, 4).sqrt(), "1 of 2 results are zero (infinite slope)"),
    "Rsqrt": (lambda: tensor(0, 4).rsqrt(), "1 of 2 results are infinite"),
    "Reciprocal": (lambda: tensor(0, 4).reciprocal(), "1 of 2 results are infinite"),
    "Exp": (lambda: tensor(1, 100).exp(), "1 of 2 results are infinite"),
    "Div": (lambda: tensor(1, 1) / tensor(0, 1), "1 zero and 0 negative of 2 entries"),
    "Pow": (lambda: tensor(0, 1) ** 0.5, "1 zero and 0 negative of 2 entries"),
    "LinalgVectorNorm": (
        lambda: torch.linalg.vector_norm(torch.outer(tensor(0, 1), tensor(1, 1)), dim=1),
        "1 of 2 results are zero (infinite slope)",
    ),
}

GOOD: dict[str, Callable[[], Tensor]] = {
    "Log": lambda: tensor(1, 1e-30).log(),
    "Sqrt": lambda: (tensor(0, 4) + 1e-8).sqrt(),
    "Rsqrt": lambda: tensor(1, 4).rsqrt(),
    "Exp": lambda: tensor(1, 50).exp(),
    "Div": lambda: tensor(1, 1) / tensor(-2, 1),
    "Div by a number": lambda: tensor(1, 1) / 3,
    "Pow": lambda: tensor(0, -1) ** 2,
    "LinalgVectorNorm": lambda: torch.linalg.vector_norm(tensor(0, 1)),
    "logsumexp": lambda: tensor(1000, 0).logsumexp(0),
    "softplus": lambda: nn.functional.softplus(tensor(1000, 0)),
}


@pytest.mark.parametrize("name", BAD)
def test_hazards_are_found(name: str) -> None:
    make, trouble = BAD[name]
    assert hazards(make().sum()) == [(name, trouble)]


@pytest.mark.parametrize("name", GOOD)
def test_safe_operations_are_not(name: str) -> None:
    assert hazards(GOOD[name]().sum()) == []


def test_the_nearest_comes_first_and_the_far_are_not_searched() -> None:
    assert [name for name, _ in hazards(tensor(0).log().exp().reciprocal().sum())] == [
        "Reciprocal",
        "Log",
    ]
    x = tensor(0).log()
    for _ in range(400):
        x = x + 1
    assert hazards(x.sum()) == []
    assert hazards(torch.tensor(1.0)) == []


def test_packed_tensors_are_left_alone() -> None:
    unpacked = []

    def unpack(x: Tensor) -> Tensor:
        unpacked.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
        loss = tensor(0, 1).log().sum()
    assert hazards(loss) == unpacked == []


def test_a_hazard_is_kept_with_the_run_once(watch: Any, read: Any) -> None:
    """In the step in which it is met, looked at or not."""
    weight = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.0)
    with watch(weight, optimizer) as dbg:
        for step in range(5):
            optimizer.zero_grad()
            out = weight(torch.ones(3, 1))
            (out * 0 + (step < 3)).log().mean().backward()
            optimizer.step()
    with RunFile(Path(dbg.path)) as file:
        (event,) = file.events()
    assert (event.kind, event.where, event.step) == (EventType.NONFINITE, "loss:log", 3)
    assert event.metadata == {
        "operation": "log",
        "trouble": "3 zero and 0 negative of 3 entries",
    }
    assert read(dbg).series(Kind.LOSS, "loss", "value").values.tolist()[3] == float("-inf")


def test_on_a_device_only_due_steps_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("neuraldbg.torch.seen.hazards", lambda loss: looked.append(loss.device))
    side = LossSide(*[None] * 4)  # type: ignore[arg-type]
    monkeypatch.setattr(side, "_find_hazards", lambda loss, step: looked.append(loss.device.type))
    for device, due in (("meta", False), ("meta", True), ("cpu", False), ("cpu", True)):
        side.look_out(torch.ones((), device=device), 0, due=due)
    assert looked == ["meta", "cpu", "cpu"]
