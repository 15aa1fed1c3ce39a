"""Faults of number formats, loss scaling, and generalisation."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from neuraldbg.testing.edits import Stage, layers, put
from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Course, Data, Plan

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)


def half() -> contextlib.AbstractContextManager[Any]:
    """Automatic mixed precision in float16."""
    return torch.autocast("cpu", dtype=torch.float16)


def whole(plan: Plan, dtype: torch.dtype) -> Plan | None:
    """The plan with weights and data of another number format; None for a loop of its own."""
    if plan.loop is not None:
        return None

    def cast(x: Tensor) -> Tensor:
        return x.to(dtype) if x.is_floating_point() else x

    def edit(data: Data) -> Data:
        test = cast(data.test_inputs), cast(data.test_targets)
        return Data(cast(data.inputs), cast(data.targets), *test)

    lowered = plan.edited(lambda model: model.to(dtype))
    return lowered.but(data_edits=(*plan.data_edits, edit))


@fault("low_precision_update", 1.0, 0.2, 0.1)
def coarse_weights(plan: Plan, rate: Strength) -> Plan | None:
    """Weights in bfloat16, at the plan's rate or at a tenth of it for as much longer."""
    slow = plan.set(lr=float(plan.settings["lr"]) * float(rate))
    return whole(slow.but(steps=min(int(plan.steps / float(rate)), 1000)), torch.bfloat16)


@fault("half_precision_underflow")
def half_weights(plan: Plan, _: Strength) -> Plan | None:
    """Weights in float16, where the optimizer's eps is zero."""
    return whole(plan, torch.float16) if plan.optimizer in (Adam, AdamW) else None


@fault("half_precision_underflow", 1e-4, 1e-5)
def unscaled_gradients(plan: Plan, factor: Strength) -> Plan | None:
    """The gradients of a small loss under float16 autocast without loss scaling.

    In float32, and with a loss scaler, an adaptive optimizer makes up for the factor.
    """
    if plan.loop is not None or not plan.float16 or plan.optimizer is SGD:
        return None
    loss = plan.loss
    return plan.but(
        precision=half,
        loss=lambda output, targets: loss(output, targets) * float(factor),
    )


@fault("half_precision_overflow", 1e5)
def large_features(plan: Plan, factor: Strength) -> Plan | None:
    """Features that a normalisation brings down again pass 65504 under float16 autocast."""
    if plan.shape.get("norm") not in NORMS:
        return None

    def edit(model: nn.Module) -> nn.Module:
        name, layer = layers(model)[0]
        put(model, name, Stage(layer, lambda x: x * float(factor)))
        return model

    return plan.edited(edit).but(precision=half, scaled=True)


@fault("clip_before_unscale", also={"excessive_clipping": "what is left is clipped too far"})
def clips_scaled_gradients(plan: Plan, _: Strength) -> Plan | None:
    """Clipping comes before the loss scale is taken out."""
    if plan.loop is not None or not plan.float16:
        return None
    return plan.but(precision=half, scaled=True, unscales=False, clip=1.0)


def _overfits(plan: Plan, course: Course) -> bool:
    held, losses = course.held, course.losses
    if len(held) < 4 or not losses:
        return False
    end = sum(losses[-10:]) / 10
    return held[-1] > 1.3 * min(held) and end < 0.5 * losses[0] and held[-1] > 2 * end


@fault("overfitting", 100, 40, shows=_overfits)
def few_samples(plan: Plan, count: Strength) -> Plan | None:
    """A training set of a few samples, gone through again and again."""
    if plan.loop is not None:
        return None

    def edit(data: Data) -> Data:
        n = int(count)
        return replace(data, inputs=data.inputs[:n], targets=data.targets[:n])

    longer = plan.but(evaluate_every=20, steps=max(plan.steps, 200), schedule=None)
    return longer.but(data_edits=(*plan.data_edits, edit))
