"""Healthy variations of programs that look odd: a diagnosis of them is a false alarm."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
)

from neuraldbg.testing import loops
from neuraldbg.testing.edits import layers
from neuraldbg.testing.plan import Plan

Vary = Callable[[Plan], Plan | None]
VARIATIONS: dict[str, Vary] = {}


def variation(change: Vary) -> Vary:
    """Register a variation under its name."""
    VARIATIONS[change.__name__] = change
    return change


def all_variations() -> dict[str, Vary]:
    """Every variation by name."""
    return VARIATIONS


def variations_of(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The variations that fit a program."""
    for name, change in all_variations().items():
        varied = change(plan)
        if varied is not None:
            yield name, varied


def _rate(plan: Plan) -> float:
    return float(plan.settings["lr"])


# -- schedules -----------------------------------------------------------------------


def _scheduled(plan: Plan, share: Callable[[float], float]) -> Plan:
    """The plan with a rate that depends on the share of the run that is done."""

    def make(optimizer: Optimizer) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: share(step / plan.steps))

    return plan.but(schedule=make, schedule_period=1)


@variation
def cosine_to_zero(plan: Plan) -> Plan | None:
    """The rate is zero at the end."""
    if plan.loop is not None:
        return None
    return plan.but(schedule=lambda optimizer: CosineAnnealingLR(optimizer, plan.steps))


@variation
def warm_up_from_zero(plan: Plan) -> Plan:
    """The first step has a rate of zero."""
    return _scheduled(plan, lambda done: min(done / 0.15, 1.0))


@variation
def held_back(plan: Plan) -> Plan:
    """Nearly no rate for a third of the run: a plateau, and then a drop."""
    longer = plan.but(steps=int(1.5 * plan.steps))
    return _scheduled(longer, lambda done: 1e-3 if done < 1 / 3 else 1.0)


@variation
def one_cycle(plan: Plan) -> Plan | None:
    """Up to three times the rate and down again, with the momentum going the other way."""
    top = 3 * _rate(plan)
    if "betas" in plan.settings:
        return None
    return plan.but(
        schedule=lambda optimizer: OneCycleLR(optimizer, top, total_steps=plan.steps + 1)
    )


@variation
def warm_restarts(plan: Plan) -> Plan | None:
    """The rate jumps up again several times."""
    if plan.loop is not None:
        return None
    period = max(plan.steps // 4, 1)
    return plan.but(schedule=lambda o: CosineAnnealingWarmRestarts(o, period))


# -- the loop ------------------------------------------------------------------------


@variation
def accumulates(plan: Plan) -> Plan | None:
    """Four backward passes of a quarter of the batch for each step."""
    if plan.batch < 16 or plan.loop is not None or plan.shape.get("norm") in BATCH_NORMS:
        return None
    return plan.but(accumulate=4, batch=plan.batch // 4)


@variation
def small_batches(plan: Plan) -> Plan | None:
    """A noisy loss, at a rate that suits it."""
    if plan.loop is not None or plan.shape.get("norm") in BATCH_NORMS:
        return None
    slower = plan.set(lr=0.4 * _rate(plan))
    return slower.but(batch=max(plan.batch // 8, 4), steps=3 * plan.steps)


@variation
def clips_often(plan: Plan) -> Plan | None:
    """Clipping at nearly every step, which an adaptive optimizer makes up for."""
    return None if plan.optimizer is SGD else plan.but(clip=0.05)


@variation
def evaluates_often(plan: Plan) -> Plan | None:
    """An evaluation after every few steps."""
    return None if plan.loop is not None else plan.but(evaluate_every=5)


@variation
def two_optimizers(plan: Plan) -> Plan | None:
    """One optimizer for each half of the model."""
    return None if plan.loop is not None else plan.but(loop=loops.two_optimizers)


@variation
def early_stopping(plan: Plan) -> Plan | None:
    """The run ends when the held-out loss no longer falls."""
    if plan.loop is not None:
        return None
    return plan.but(loop=loops.stops_early, evaluate_every=10, steps=2 * plan.steps)


@variation
def lbfgs(plan: Plan) -> Plan | None:
    """A quasi-Newton method on all the data, with a closure."""
    if plan.task not in ("quantity", "binary") or plan.loop is not None:
        return None
    still = plan.shaped(dropout=0.0)
    return still.but(loop=loops.full_batch, steps=6, evaluate_every=0, mark=0.8 * plan.mark)


@variation
def mixed_precision(plan: Plan) -> Plan | None:
    """Autocast to bfloat16."""

    def bfloat16() -> contextlib.AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    return None if plan.loop is not None else plan.but(precision=bfloat16)


@variation
def scaled_half_precision(plan: Plan) -> Plan | None:
    """Autocast to float16 with a loss scaler, used as it should be."""

    def float16() -> contextlib.AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.float16)

    fitting = plan.loop is None and plan.float16
    return plan.but(precision=float16, scaled=True) if fitting else None


# -- the model -----------------------------------------------------------------------

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@variation
def sparse_units(plan: Plan) -> Plan | None:
    """Biases keep most rectified units at zero most of the time."""
    if plan.shape.get("activation") is not nn.ReLU or plan.shape.get("norm"):
        return None

    def edit(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            for _, layer in layers(model)[:-1]:
                if isinstance(layer.bias, Tensor):
                    layer.bias.sub_(0.3)
        return model

    return plan.edited(edit)


@variation
def zero_head(plan: Plan) -> Plan | None:
    """The last layer starts at zero, as adapters do."""
    if plan.loop is not None:
        return None

    def edit(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            for param in layers(model)[-1][1].parameters():
                param.zero_()
        return model

    return plan.edited(edit)


@variation
def much_dropout(plan: Plan) -> Plan | None:
    """Half of the units are dropped, and twice as many are there."""
    if "dropout" not in plan.shape or "heads" in plan.shape:
        return None
    wide = plan.shaped(dropout=0.5, width=2 * int(plan.shape["width"]))
    return wide.but(steps=int(1.5 * plan.steps))


@variation
def label_smoothing(plan: Plan) -> Plan | None:
    """A tenth of each label is spread over all classes, so the loss cannot reach zero."""
    if plan.task != "classes":
        return None
    return plan.but(loss=functools.partial(F.cross_entropy, label_smoothing=0.1))


# -- starting from something -----------------------------------------------------------


@variation
def fine_tuning(plan: Plan) -> Plan | None:
    """A trained model goes on at a tiny rate."""
    if plan.loop is not None:
        return None
    tiny = plan.set(lr=0.01 * _rate(plan)).but(schedule=None)
    return tiny.but(pretraining=plan, steps=plan.steps // 2)


@variation
def frozen_backbone(plan: Plan) -> Plan | None:
    """A new last layer on a trained model that is frozen on purpose."""
    if plan.task not in ("classes", "quantity", "binary") or plan.loop is not None:
        return None

    def edit(model: nn.Module) -> nn.Module:
        model.requires_grad_(requires_grad=False)
        head = layers(model)[-1][1]
        head.requires_grad_(requires_grad=True)
        if isinstance(head, nn.Linear):
            head.reset_parameters()
        return model

    fresh = plan.edited(edit).but(pretraining=plan, schedule=None)
    return fresh.but(trained=lambda model: [p for p in model.parameters() if p.requires_grad])


@variation
def layerwise_rates(plan: Plan) -> Plan | None:
    """Each parameter has a group of its own, with a lower rate further down."""
    if plan.loop is not None:
        return None

    def groups(model: nn.Module) -> list[dict[str, Any]]:
        every = list(model.parameters())
        rates = [_rate(plan) * math.pow(0.3, 1 - i / len(every)) for i in range(len(every))]
        return [{"params": [p], "lr": rate} for p, rate in zip(every, rates, strict=True)]

    return plan.but(trained=groups)
