"""A binary classifier of tumours with a loss of logits."""

from __future__ import annotations

from torch import nn
from torch.optim import Adam

from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import balanced_accuracy, tumours


def build(
    width: int = 24,
    depth: int = 2,
    activation: type[nn.Module] | None = nn.ReLU,
    norm: type[nn.Module] | None = nn.BatchNorm1d,
    dropout: float = 0.2,
    output: type[nn.Module] | None = None,
) -> nn.Module:
    """Hidden layers with batch normalisation, and one logit."""
    net = nn.Sequential()
    given = 30
    for i in range(1, depth + 1):
        net.add_module(f"fc{i}", nn.Linear(given, width))
        if norm is not None:
            net.add_module(f"bn{i}", norm(width))
        if activation is not None:
            net.add_module(f"act{i}", activation())
        net.add_module(f"drop{i}", nn.Dropout(dropout))
        given = width
    net.add_module("logit", nn.Linear(given, 1))
    if output is not None:
        net.add_module("out", output())
    return net


@program
def tumour_logits() -> Plan:
    """More than nine in ten of either kind are told."""
    return Plan(
        name="tumour_logits",
        task="binary",
        stacked=True,
        data=tumours,
        build=build,
        shape={
            "width": 24,
            "depth": 2,
            "activation": nn.ReLU,
            "norm": nn.BatchNorm1d,
            "dropout": 0.2,
            "output": None,
        },
        loss=nn.BCEWithLogitsLoss(),
        optimizer=Adam,
        settings={"lr": 3e-3},
        measure=balanced_accuracy,
        mark=0.92,
        steps=120,
        batch=32,
        evaluate_every=30,
    )
