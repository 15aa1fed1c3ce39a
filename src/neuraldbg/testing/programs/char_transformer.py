"""A small causal transformer on the source text of Python's standard library."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW

from neuraldbg.testing.plan import Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import source_text, windows

LETTERS = 96
LENGTH = 24


class Attention(nn.Module):
    """Causal self-attention with separate projections."""

    def __init__(self, width: int, heads: int, scale: float | None) -> None:
        super().__init__()
        self.heads = heads
        self.scale = 1 / math.sqrt(width // heads) if scale is None else scale
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) to the same shape."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        logits = q @ k.transpose(-2, -1) * self.scale
        future = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        weights = logits.masked_fill(future, float("-inf")).softmax(-1)
        out: Tensor = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention and a perceptron, each with a skip path."""

    def __init__(
        self, width: int, heads: int, scale: float | None, dropout: float, norm: type[nn.Module]
    ) -> None:
        super().__init__()
        self.norm1 = norm(width)
        self.attn = Attention(width, heads, scale)
        self.norm2 = norm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) to the same shape."""
        x = x + self.drop(self.attn(self.norm1(x)))
        out: Tensor = x + self.drop(self.mlp(self.norm2(x)))
        return out


class CharTransformer(nn.Module):
    """Predicts the next character."""

    def __init__(
        self,
        width: int = 48,
        depth: int = 2,
        heads: int = 3,
        scale: float | None = None,
        dropout: float = 0.0,
        norm: type[nn.Module] = nn.LayerNorm,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads, scale, dropout, norm) for _ in range(depth))
        self.norm = norm(width)
        self.head = nn.Linear(width, LETTERS)
        self.out = output(dim=-1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, codes: Tensor) -> Tensor:
        """Codes of shape (batch, time) to scores of shape (batch, time, letters)."""
        x = self.letters(codes) + self.places(torch.arange(codes.shape[1]))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.out(self.head(self.norm(x)))
        return scores


@functools.cache
def _codes() -> Tensor:
    return source_text(120_000)


def data() -> Data:
    """Stretches of source code."""
    return windows(_codes(), LENGTH, 2048)


def loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over all characters."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def held_loss(model: nn.Module, data: Data) -> float:
    """Cross-entropy on held-out text."""
    return float(
        F.cross_entropy(model(data.test_inputs).flatten(0, 1), data.test_targets.flatten())
    )


@program
def char_transformer() -> Plan:
    """Well under the 3.3 nats of a guess by frequency."""
    return Plan(
        name="char_transformer",
        task="text",
        tokens=True,
        data=data,
        build=CharTransformer,
        shape={
            "width": 48,
            "depth": 2,
            "heads": 3,
            "scale": None,
            "dropout": 0.0,
            "norm": nn.LayerNorm,
            "output": None,
        },
        loss=loss,
        optimizer=AdamW,
        settings={"lr": 3e-3},
        measure=held_loss,
        mark=2.65,
        rising=False,
        steps=150,
        batch=16,
        clip=1.0,
        evaluate_every=50,
    )
