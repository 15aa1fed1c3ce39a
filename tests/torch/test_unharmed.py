"""Watching changes nothing: the same losses and parameters, to the last bit in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from neuraldbg.torch.monitor import NeuralDbg

Watch = Callable[..., NeuralDbg]
STEPS = 50


class Net(nn.Module):
    """Convolution, batch statistics, dropout, attention, in-place changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3)
        self.mix = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.act(self.bn(self.conv(x))))
        x = self.mix(x.flatten(2).transpose(1, 2))
        return self.head(x.mean(1))


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adam-foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam-fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
}


def run(
    make: Callable[[Any], Optimizer],
    watch: Callable[..., Any],
    prepare: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda model: model,
    steps: int = STEPS,
) -> tuple[list[float], list[Tensor]]:
    """Train with evaluation in between; returns losses, and all state at the end."""
    torch.manual_seed(3)
    model = Net()
    call = prepare(model)
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    with watch(model, optimizer):
        for step in range(steps):
            x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if step % 10 == 0:
                model.eval()
                with torch.no_grad():
                    losses.append(F.cross_entropy(model.head(torch.ones(3, 4)), y[:3]).item())
                model.train()
    state = [t.clone() for t in model.state_dict().values()]
    state += [v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
    return losses, [*state, torch.get_rng_state()]


def unwatched(*_: Any) -> Any:
    return nullcontext()


@pytest.mark.parametrize("budget", [0.02, float("inf")])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_eager_training_is_the_same_to_the_last_bit(kind: str, budget: float, watch: Watch) -> None:
    plain = run(OPTIMIZERS[kind], unwatched)
    watched = run(OPTIMIZERS[kind], lambda *args: watch(*args, budget=budget))
    assert watched[0] == plain[0]
    assert all(map(torch.equal, watched[1], plain[1]))


def compiled(backend: str) -> Callable[[nn.Module], Callable[[Tensor], Tensor]]:
    return lambda model: torch.compile(model, backend=backend, fullgraph=True)


@pytest.mark.slow
def test_compiled_training_is_the_same_to_the_last_bit(
    watch: Watch, fresh_dynamo: dict[str, Any]
) -> None:
    """Without code generation, the graph with taps computes what the one without does."""
    plain = run(OPTIMIZERS["adamw"], unwatched, compiled("aot_eager"))
    torch._dynamo.reset()
    watched = run(OPTIMIZERS["adamw"], watch, compiled("aot_eager"))
    assert watched[0] == plain[0]
    assert all(map(torch.equal, watched[1], plain[1]))


class Checkpointed(nn.Module):
    """Whose recomputation leaves traces: batch statistics, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self._scores, x, use_reentrant=False)

    def _scores(self, x: Tensor) -> Tensor:
        self.calls += 1
        return (self.body(x).exp() / 3).sqrt().log()


def test_reading_the_loss_runs_no_checkpoint_again(watch: Watch) -> None:
    """Tensors saved under hooks are not unpacked."""

    def train(watch: Callable[..., Any]) -> tuple[int, list[Tensor]]:
        torch.manual_seed(3)
        model = Checkpointed()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with watch(model, optimizer):
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.randn(6, 4)).square().mean().backward()
                optimizer.step()
        return model.calls, list(model.state_dict().values())

    watched, plain = train(watch), train(unwatched)
    assert watched[0] == plain[0] == 10
    assert all(map(torch.equal, watched[1], plain[1]))


class Smooth(nn.Module):
    """No dropout, whose random numbers depend on how Inductor fuses."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@pytest.mark.slow
@pytest.mark.compile
def test_training_by_inductor_is_the_same_within_rounding(
    watch: Watch, fresh_dynamo: dict[str, Any]
) -> None:
    def losses(watch: Callable[..., Any]) -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(3)
        model = Smooth()
        call = torch.compile(model, fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        with watch(model, optimizer):
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = F.cross_entropy(call(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        return found

    assert losses(watch) == pytest.approx(losses(unwatched), rel=1e-4)
