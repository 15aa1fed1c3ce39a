"""A perceptron in one `nn.Sequential`, SGD with momentum, on scikit-learn's digits."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn
from torch.optim import SGD

from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, digits


def build(
    width: int = 64,
    depth: int = 2,
    activation: type[nn.Module] | None = nn.ReLU,
    norm: type[nn.Module] | None = None,
    dropout: float = 0.0,
    output: type[nn.Module] | None = None,
) -> nn.Module:
    """`depth` hidden layers and ten scores."""
    layers: list[nn.Module] = []
    given = 64
    for _ in range(depth):
        layers.append(nn.Linear(given, width))
        layers += [norm(width)] if norm else []
        layers += [activation()] if activation else []
        layers += [nn.Dropout(dropout)] if dropout else []
        given = width
    layers.append(nn.Linear(given, 10))
    layers += [output(dim=1)] if output is nn.Softmax else [output()] if output else []
    return nn.Sequential(*layers)


@program
def digits_mlp() -> Plan:
    """More than nine in ten held-out digits are read."""
    return Plan(
        name="digits_mlp",
        task="classes",
        data=digits,
        build=build,
        stacked=True,
        shape={
            "width": 64,
            "depth": 2,
            "activation": nn.ReLU,
            "norm": None,
            "dropout": 0.0,
            "output": None,
        },
        loss=F.cross_entropy,
        optimizer=SGD,
        settings={"lr": 0.05, "momentum": 0.9},
        measure=accuracy,
        mark=0.9,
        steps=200,
        batch=64,
        evaluate_every=50,
    )
