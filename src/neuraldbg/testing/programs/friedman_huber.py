"""Friedman's regression problem with a robust loss and AdamW."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from neuraldbg.testing.plan import Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import determination, split, standardised


class HuberNet(nn.Module):
    """A perceptron that ends in one number."""

    def __init__(
        self,
        width: int = 40,
        depth: int = 2,
        activation: type[nn.Module] | None = nn.ReLU,
        norm: type[nn.Module] | None = None,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        given = 10
        for _ in range(depth):
            layers.append(nn.Linear(given, width))
            layers += [norm(width)] if norm else []
            layers += [activation()] if activation else []
            given = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(given, 1)
        self.out = (output or nn.Identity)()

    def forward(self, rows: Tensor) -> Tensor:
        """Numbers of shape (batch, 1)."""
        value: Tensor = self.out(self.head(self.body(rows)))
        return value


def data() -> Data:
    """Five columns that count, five that do not, and noise (Friedman, 1991)."""
    x = torch.rand(1200, 10)
    y = 10 * (torch.pi * x[:, 0] * x[:, 1]).sin() + 20 * (x[:, 2] - 0.5).square()
    y = y + 10 * x[:, 3] + 5 * x[:, 4] + torch.randn(len(x))
    return split(standardised(x), standardised(y[:, None]))


@program
def friedman_huber() -> Plan:
    """More of the variance is explained than the seven tenths that are linear."""
    return Plan(
        name="friedman_huber",
        task="quantity",
        stacked=True,
        data=data,
        build=HuberNet,
        shape={"width": 40, "depth": 2, "activation": nn.ReLU, "norm": None, "output": None},
        loss=nn.SmoothL1Loss(),
        optimizer=AdamW,
        settings={"lr": 5e-3, "weight_decay": 0.01},
        measure=determination,
        mark=0.8,
        steps=220,
        batch=40,
        evaluate_every=55,
    )
