"""What the tests of the torch spoke share; after each of them nothing may be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer, optimizer
from torch.optim.lr_scheduler import LRScheduler

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.store.reader import load_record
from neuraldbg.torch import boundaries, caching, loop, taps
from neuraldbg.torch.monitor import NeuralDbg

Watch = Callable[..., NeuralDbg]

PLACES = [
    (torch, "compile"),
    (torch.autograd, "backward"),
    (torch.nn.utils.clip_grad, "_clip_grads_with_norm_"),
    (torch.amp.GradScaler, "scale"),
    (torch.amp.GradScaler, "step"),
    (Optimizer, "__init__"),
    (LRScheduler, "__init__"),
    (nn.Module, "compile"),
]


def global_state() -> dict[str, Any]:
    """All that is changed in the process while a model is under watch."""
    return {
        "functions": [owner.__dict__[name] for owner, name in PLACES],
        "optimizer hooks": (
            list(optimizer._global_optimizer_pre_hooks.values()),
            list(optimizer._global_optimizer_post_hooks.values()),
        ),
        "listeners": list(boundaries.LISTENERS),
        "watches": list(loop.WATCHES),
        "switch": taps.SWITCH.on,
        "marked": caching._marked,
    }


def left_over() -> set[object]:
    """What may go away by itself, such as a thread of an earlier test, but must not be added.

    Only our own threads count: Inductor starts and ends threads whenever it likes.
    """
    ours = {t.name for t in threading.enumerate() if t.name.startswith("neuraldbg")}
    return {*taps.SINKS, *(("in graph", slot) for slot in taps.IN_GRAPH), *ours}


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NEURALDBG_DIR", str(tmp_path / "runs"))
    for name in ("NEURALDBG_MODE", "NEURALDBG_STRICT"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _nothing_left(_settings: None) -> Iterator[None]:
    taps.SWITCH.on = False
    before, held = global_state(), left_over()
    yield
    assert global_state() == before
    assert left_over() <= held


@pytest.fixture
def watch() -> Watch:
    """A monitor that looks at every step and raises its own errors."""

    def make(model: nn.Module, *args: Any, **settings: Any) -> NeuralDbg:
        return NeuralDbg(model, *args, **{"budget": float("inf"), "strict": True} | settings)

    return make


@pytest.fixture
def read() -> Callable[[NeuralDbg], Record]:
    """What a monitor has recorded."""

    def load(dbg: NeuralDbg) -> Record:
        assert dbg.path is not None
        return load_record(dbg.path)

    return load


@pytest.fixture
def losses(read: Callable[[NeuralDbg], Record]) -> Callable[..., list[float]]:
    """The recorded series of losses."""

    def series(dbg: NeuralDbg, name: str = "loss") -> list[float]:
        return read(dbg).series(Kind.LOSS, name, m.L_VALUE).values.tolist()

    return series


@pytest.fixture
def mlp() -> nn.Sequential:
    """A small model for batches of four features."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture
def train() -> Callable[..., list[float]]:
    """A plain training loop; returns its losses as the user reads them."""

    def run(
        model: Callable[[Tensor], Tensor], optimizer: Optimizer | None, steps: int = 3
    ) -> list[float]:
        losses = []
        for _ in range(steps):
            loss = model(torch.randn(8, 4)).square().mean()
            if optimizer is not None:
                optimizer.zero_grad()
            loss.backward()
            if optimizer is not None:
                optimizer.step()
            losses.append(loss.item())
        return losses

    return run


@pytest.fixture
def fresh_dynamo() -> Iterator[dict[str, Any]]:
    """Dynamo as in a new process; gives its counters."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    yield counters
    torch._dynamo.reset()
