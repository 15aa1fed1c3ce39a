"""A change that leaves alone what trains before the training that fails."""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg.torch import boundaries
from neuraldbg.torch.interventions import Context, ear_of, make


def moved(began: int) -> list[float]:
    """How far a weight moves in each of four steps at rate 1 and gradient 1."""
    action = make("lr_x0.1", Context(began=began))
    listener = ear_of(action)
    boundaries.listen(listener)
    try:
        layer = nn.Linear(1, 1, bias=False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        out = []
        for _ in range(4):
            before = layer.weight.item()
            optimizer.zero_grad()
            layer(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            out.append(round(before - layer.weight.item(), 3))
        assert action.applied == max(4 - began, 0)
        return out
    finally:
        boundaries.ignore(listener)
        boundaries.ignore(action)


def test_steps_before_are_left_alone() -> None:
    assert moved(0) == [0.1, 0.1, 0.1, 0.1]
    assert moved(2) == [1.0, 1.0, 0.1, 0.1]
    assert moved(9) == [1.0, 1.0, 1.0, 1.0]


def test_models_are_met_at_once() -> None:
    action = make("zero_biases", Context(layers=("0",), began=100))
    listener = ear_of(action)
    boundaries.listen(listener)
    try:
        model = nn.Sequential(nn.Linear(2, 2))
        torch.optim.SGD(model.parameters(), lr=1.0)
        assert model[0].bias.tolist() == [0.0, 0.0]
    finally:
        boundaries.ignore(listener)
        boundaries.ignore(action)
