"""Faults of the inputs: scale, missing values, outliers, shifts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Data, Plan


def _numeric(plan: Plan) -> bool:
    return not plan.tokens and plan.task != "generation"


def _inputs(plan: Plan, change: Callable[[Tensor], Tensor]) -> Plan | None:
    """The plan with the same change of all its inputs."""

    def edit(data: Data) -> Data:
        return replace(data, inputs=change(data.inputs), test_inputs=change(data.test_inputs))

    return plan.but(data_edits=(*plan.data_edits, edit)) if _numeric(plan) else None


def _batches(plan: Plan, change: Callable[[int, Tensor], Tensor]) -> Plan | None:
    """The plan with a change of the inputs of its batches, by step."""

    def edit(step: int, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return change(step, inputs), targets

    return plan.but(batch_edits=(*plan.batch_edits, edit)) if _numeric(plan) else None


@fault("unnormalized_input", 30, 300)
def raw_scale(plan: Plan, factor: Strength) -> Plan | None:
    """Inputs on a scale of their own, with an offset."""
    return _inputs(plan, lambda x: (x + 1) * float(factor))


@fault("unnormalized_input", 1000)
def unequal_columns(plan: Plan, factor: Strength) -> Plan | None:
    """Columns whose scales differ by orders of magnitude."""

    def change(x: Tensor) -> Tensor:
        return x * float(factor) ** torch.linspace(0, 1, x.shape[-1])

    return _inputs(plan, change)


@fault("nonfinite_input", 0.002, 0.05)
def missing_values(plan: Plan, share: Strength) -> Plan | None:
    """Some training samples hold a NaN."""

    def edit(data: Data) -> Data:
        inputs = data.inputs.clone()
        rows = torch.randperm(len(inputs))[: max(int(len(inputs) * float(share)), 1)]
        inputs.view(len(inputs), -1)[rows, 1] = float("nan")
        return replace(data, inputs=inputs)

    return plan.but(data_edits=(*plan.data_edits, edit)) if _numeric(plan) else None


@fault("outlier_batch", 1e3, 1e5)
def outliers(plan: Plan, factor: Strength) -> Plan | None:
    """One batch late in the run holds huge values."""
    at = int(0.8 * plan.steps)
    return _batches(plan, lambda step, x: x * float(factor) if step == at else x)


@fault("distribution_shift", 5.0)
def shifted(plan: Plan, size: Strength) -> Plan | None:
    """From the middle of the run on, inputs are scaled and offset."""
    at = plan.steps // 2
    return _batches(plan, lambda step, x: (x + 1) * float(size) if step >= at else x)


@fault("degenerate_input", 0.0)
def constant_input(plan: Plan, value: Strength) -> Plan | None:
    """The inputs are lost in loading."""
    return _inputs(plan, lambda x: torch.full_like(x, float(value)))


@fault("degenerate_input")
def repeated_sample(plan: Plan, _: Strength) -> Plan | None:
    """An index that never moves: every input is the first of its batch."""
    return _batches(plan, lambda step, x: x[:1].expand_as(x).clone())
