"""Training steps that overhead is measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
        predict: Draws a batch; logits and targets.
        forward_backward: Both passes; the loss. A tool with a loop of its own replaces it.
        before_update: Called with the loss between the backward pass and the update.
        after: Called with the loss after the update.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    predict: Callable[[], tuple[Tensor, Tensor]]
    forward_backward: Callable[[], Tensor] = field(init=False)
    before_update: list[Callable[[Tensor], object]] = field(default_factory=list)
    after: list[Callable[[Tensor], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forward_backward = self._forward_backward

    def step(self) -> Tensor:
        """Run one step; the loss."""
        loss = self.forward_backward()
        for listener in self.before_update:
            listener(loss)
        self.optimizer.step()
        for listener in self.after:
            listener(loss)
        return loss

    def _forward_backward(self) -> Tensor:
        loss = F.cross_entropy(*self.predict())
        self.optimizer.zero_grad()
        loss.backward()
        return loss


Forward = Callable[[Tensor], Tensor]
Made = tuple[nn.Module, Callable[[Forward], tuple[Tensor, Tensor]]]


def gpt() -> Made:
    """The demo's four-layer GPT on random characters."""
    model, _ = char_gpt.build(96, "none")
    data = torch.randint(0, 96, (100_000,))
    generator = torch.Generator().manual_seed(0)

    def predict(forward: Forward) -> tuple[Tensor, Tensor]:
        inputs, targets = char_gpt.draw_batch(data, generator)
        return forward(inputs).flatten(0, 1), targets.flatten()

    return model, predict


def mlp() -> Made:
    """A tiny perceptron: the worst case, since a step takes about a millisecond."""
    model = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
    return model, lambda forward: (forward(x), y)


def cnn() -> Made:
    """A small convolutional net with batch normalisation."""

    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]

    model = nn.Sequential(
        *block(3, 32), *block(32, 64), *block(64, 64), nn.Flatten(), nn.Linear(1024, 10)
    )
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return model, lambda forward: (forward(x), y)


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


def lstm() -> Made:
    """A two-layer LSTM."""
    x, y = torch.randn(32, 40, 32), torch.randint(0, 10, (32,))
    return Recurrent(), lambda forward: (forward(x), y)


MODELS = {"mlp": mlp, "cnn": cnn, "gpt": gpt, "lstm": lstm}


def build(name: str, backend: str) -> Workload:
    """A workload by name.

    Args:
        name: A key of `MODELS`.
        backend: `eager` for no compilation, else a backend of `torch.compile`.
    """
    torch.manual_seed(0)
    model, predict = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forward = model if backend == "eager" else torch.compile(model, backend=backend)
    return Workload(forward, optimizer, lambda: predict(forward))
