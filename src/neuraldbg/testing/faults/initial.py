"""Faults of the initial weights and biases."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from neuraldbg.testing.edits import layers, weights
from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Plan


def _filled(plan: Plan, fill: Callable[[Tensor], Tensor]) -> Plan:
    def edit(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            for weight in weights(model):
                fill(weight)
        return model

    return plan.edited(edit)


@fault("init_too_large", 5, 20, 100)
def large_weights(plan: Plan, factor: Strength) -> Plan:
    """Every initial weight is multiplied."""
    return _filled(plan, lambda w: w.mul_(float(factor)))


@fault("init_too_large", 30, 300)
def one_large_layer(plan: Plan, factor: Strength) -> Plan:
    """The weights of the last layer are multiplied."""

    def edit(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            weight = layers(model)[-1][1].weight
            if isinstance(weight, Tensor):
                weight.mul_(float(factor))
        return model

    return plan.edited(edit)


@fault("init_too_large", 1.0)
def standard_normal(plan: Plan, deviation: Strength) -> Plan:
    """Weights from a standard normal distribution, whatever the fan-in."""
    return _filled(plan, lambda w: nn.init.normal_(w, std=float(deviation)))


@fault("init_too_small", 0.03, 0.001)
def small_weights(plan: Plan, factor: Strength) -> Plan:
    """Every initial weight is a fraction of what it should be."""
    return _filled(plan, lambda w: w.mul_(float(factor)))


@fault("init_symmetric", 0.0, 0.01, 0.1)
def constant_weights(plan: Plan, value: Strength) -> Plan:
    """All weights start at one value."""
    return _filled(plan, lambda w: nn.init.constant_(w, float(value)))


def _biased(plan: Plan, value: Strength, *, output: bool) -> Plan:
    def edit(model: nn.Module) -> nn.Module:
        every = [x for _, x in layers(model) if isinstance(x.bias, Tensor)]
        with torch.no_grad():
            for layer in every[-1:] if output else every[:-1]:
                bias = layer.bias
                if isinstance(bias, Tensor):
                    bias[: 1 if output else None] = float(value)
        return model

    return plan.edited(edit)


@fault("bad_bias_init", -3.0, -10.0)
def hidden_biases(plan: Plan, value: Strength) -> Plan:
    """Biases of the hidden layers start far below zero."""
    return _biased(plan, value, output=False)


@fault("bad_bias_init", 30.0, 1000.0)
def output_bias(plan: Plan, value: Strength) -> Plan:
    """The bias of one output starts far from any target."""
    return _biased(plan, value, output=True)
