"""Training steps that overhead is measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.demos import char_gpt


@dataclass
class Workload:
    """A model, its optimizer, and one training step.

    Attributes:
        model: What is trained, compiled or not.
        optimizer: Its optimizer.
        step: Runs one step and returns the loss.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], Tensor]


def gpt() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """The demo's four-layer GPT on random characters."""
    model, _ = char_gpt.build(96, "none")
    data = torch.randint(0, 96, (100_000,))
    generator = torch.Generator().manual_seed(0)

    def loss(forward: nn.Module) -> Tensor:
        inputs, targets = char_gpt.draw_batch(data, generator)
        return F.cross_entropy(forward(inputs).flatten(0, 1), targets.flatten())

    return model, loss


def mlp() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """A tiny perceptron: the worst case, since a step takes about a millisecond."""
    model = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
    return model, lambda forward: F.cross_entropy(forward(x), y)


def cnn() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """A small convolutional net with batch normalisation."""

    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]

    model = nn.Sequential(
        *block(3, 32), *block(32, 64), *block(64, 64), nn.Flatten(), nn.Linear(1024, 10)
    )
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return model, lambda forward: F.cross_entropy(forward(x), y)


class Recurrent(nn.Module):
    """An LSTM over a sequence, read at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (batch, 10)."""
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def lstm() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """A two-layer LSTM."""
    x, y = torch.randn(32, 40, 32), torch.randint(0, 10, (32,))
    return Recurrent(), lambda forward: F.cross_entropy(forward(x), y)


MODELS = {"mlp": mlp, "cnn": cnn, "gpt": gpt, "lstm": lstm}


def build(name: str, backend: str) -> Workload:
    """A workload by name.

    Args:
        name: A key of `MODELS`.
        backend: `eager` for no compilation, else a backend of `torch.compile`.
    """
    torch.manual_seed(0)
    model, loss_of = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forward = model if backend == "eager" else torch.compile(model, backend=backend)

    def step() -> Tensor:
        loss = loss_of(forward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return Workload(forward, optimizer, step)
