"""Small models of every build, each with a batch to train it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@dataclass
class Answer:
    """What some models return."""

    step: int
    logits: Tensor
    hidden: tuple[Tensor, Tensor]


class Parts(nn.Module):
    """Returns a dict, a tuple and a dataclass on the way."""

    class Dict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 8)

        def forward(self, x: Tensor) -> dict[str, object]:
            return {"name": "first", "ids": torch.arange(3), "value": self.linear(x)}

    class Tuple(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
            return x.argmax(-1), [self.linear(x), x]

    class Data(nn.Module):
        def forward(self, x: Tensor) -> Answer:
            return Answer(3, x.tanh(), (x, x))

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = self.Dict(), self.Tuple(), self.Data()

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)["value"]
        second = self.second(first)[1][0]
        return self.third(second).logits


class Attention(nn.Module):
    """An embedding whose weight is also the output layer, around attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.embed(ids))
        return self.head(x + self.mix(x, x, x, need_weights=False)[0])


class Recurrent(nn.Module):
    """An LSTM over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(ids))[0][:, -1])


class Twice(nn.Module):
    """One layer and one activation that are used three times, changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.act(self.layer(x))
        return self.head(x)


class Saved(nn.Module):
    """Blocks that may be checkpointed.

    Args:
        kind: `none`, `reentrant`, `newer`, or `nested` (a newer one inside a newer one).
    """

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.up = nn.Linear(width, 2 * width)
            self.act = nn.GELU()
            self.down = nn.Linear(2 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(self.act(self.up(x)))

    def __init__(self, kind: str = "none") -> None:
        super().__init__()
        self.kind = kind
        self.stem = nn.Linear(6, 6)
        self.blocks = nn.ModuleList(self.Block(6) for _ in range(2))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.kind == "nested":
            return self.head(checkpoint(self._inner, x, use_reentrant=False))
        for block in self.blocks:
            # Each block runs twice, so that calls are told apart from recomputations.
            for _ in range(2):
                if self.kind == "none":
                    x = block(x)
                else:
                    x = checkpoint(block, x, use_reentrant=self.kind == "reentrant")
        return self.head(x)

    def _inner(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            for _ in range(2):
                x = checkpoint(block, x, use_reentrant=False)
        return x


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16),
        nn.ReLU(),
        nn.Linear(16, 16),
        nn.Sigmoid(),
        nn.Linear(16, 16),
        nn.Tanh(),
        nn.Linear(16, 2),
    )


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(72, 4),
    )


@dataclass(frozen=True)
class Case:
    """A model, its batch, and where its units are.

    Attributes:
        axis: Unit dimension of each module's output by name; the rest have none.
        flat: Activation by name, where its flat region is counted.
        reads: Unit dimension of the input, for modules whose input is looked at.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[], Tensor]
    axis: dict[str, int]
    flat: dict[str, str]
    reads: dict[str, int]


def floats() -> Tensor:
    return torch.randn(16, 6) * 3


def tokens() -> Tensor:
    return torch.randint(0, 11, (5, 7))


def images() -> Tensor:
    return torch.randn(6, 3, 8, 8)


def _last(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, -1)


CASES = {
    "mlp": Case(
        mlp,
        floats,
        _last(*"0123456"),
        {"3": "sigmoid", "5": "tanh"},
        _last("0", "2", "4", "6"),
    ),
    "conv": Case(
        conv, images, dict.fromkeys("012345", 1) | _last("6"), {}, {"0": 1, "6": -1}
    ),
    "parts": Case(
        Parts, floats, _last("first.linear", "second.linear", "third"), {},
        _last("first.linear", "second.linear"),
    ),
    "attention": Case(Attention, tokens, _last("embed", "norm", "mix", "head"), {}, _last("head")),
    "recurrent": Case(
        Recurrent, tokens, _last("embed", "rnn", "head"), {}, _last("rnn", "head")
    ),
    "twice": Case(
        Twice, floats, _last("layer", "act", "head"), {}, _last("layer", "head")
    ),
    "blocks": Case(
        Saved,
        floats,
        _last("stem", "head", *(f"blocks.{i}.{n}" for i in "01" for n in ("up", "act", "down"))),
        {},
        _last("stem", "head", *(f"blocks.{i}.{n}" for i in "01" for n in ("up", "down"))),
    ),
}  # fmt: skip


def loss_of(prediction: Tensor) -> Tensor:
    """A loss that needs no target."""
    return F.softplus(prediction).square().mean()
