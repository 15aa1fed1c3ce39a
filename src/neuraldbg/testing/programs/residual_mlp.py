"""A deep perceptron with skip paths and layer normalisation, warmed up, on digits."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, digits

STEPS = 160
WARM_UP = 16


class ResidualBlock(nn.Module):
    """Normalise, widen, come back, and add."""

    def __init__(
        self,
        width: int,
        activation: type[nn.Module] | None,
        norm: type[nn.Module] | None,
        dropout: float,
        *,
        skip: bool,
    ) -> None:
        super().__init__()
        self.norm = norm(width) if norm else nn.Identity()
        self.up = nn.Linear(width, 2 * width)
        self.act = activation() if activation else nn.Identity()
        self.down = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width) to the same shape."""
        change: Tensor = self.drop(self.down(self.act(self.up(self.norm(x)))))
        return x + change if self.skip else change


class ResidualMlp(nn.Module):
    """A stem, a stack of blocks, and a head."""

    def __init__(
        self,
        width: int = 48,
        blocks: int = 8,
        activation: type[nn.Module] | None = nn.GELU,
        norm: type[nn.Module] | None = nn.LayerNorm,
        dropout: float = 0.1,
        output: type[nn.Module] | None = None,
        *,
        skip: bool = True,
    ) -> None:
        super().__init__()
        self.stem = nn.Linear(64, width)
        self.blocks = nn.Sequential(
            *(ResidualBlock(width, activation, norm, dropout, skip=skip) for _ in range(blocks))
        )
        self.norm = norm(width) if norm else nn.Identity()
        self.head = nn.Linear(width, 10)
        self.out = output(dim=1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (batch, 10)."""
        scores: Tensor = self.out(self.head(self.norm(self.blocks(self.stem(x)))))
        return scores


def warm_cosine(optimizer: Optimizer) -> LRScheduler:
    """A linear warm-up, then half a cosine down to zero."""

    def rate(step: int) -> float:
        if step < WARM_UP:
            return (step + 1) / WARM_UP
        return 0.5 + 0.5 * math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))

    return LambdaLR(optimizer, rate)


@program
def residual_mlp() -> Plan:
    """More than nine in ten held-out digits are read."""
    return Plan(
        name="residual_mlp",
        task="classes",
        data=digits,
        build=ResidualMlp,
        shape={
            "width": 48,
            "blocks": 8,
            "activation": nn.GELU,
            "norm": nn.LayerNorm,
            "dropout": 0.1,
            "output": None,
            "skip": True,
        },
        loss=F.cross_entropy,
        optimizer=AdamW,
        settings={"lr": 2e-3, "weight_decay": 0.05},
        measure=accuracy,
        mark=0.92,
        steps=STEPS,
        batch=48,
        schedule=warm_cosine,
        clip=1.0,
        evaluate_every=40,
    )
