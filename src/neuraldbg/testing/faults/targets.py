"""Faults of the targets: scale, noise, balance, order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Data, Plan


def _targets(plan: Plan, change: Callable[[Tensor], Tensor]) -> Plan:
    """The plan with a change of its training targets."""
    return _data(plan, lambda data: replace(data, targets=change(data.targets)))


def _data(plan: Plan, edit: Callable[[Data], Data]) -> Plan:
    return plan.but(data_edits=(*plan.data_edits, edit))


@fault("unscaled_targets", 30, 1000)
def large_targets(plan: Plan, unit: Strength) -> Plan | None:
    """Targets in their natural unit: large, with an offset."""

    def edit(data: Data) -> Data:
        both = ((y + 2) * float(unit) for y in (data.targets, data.test_targets))
        targets, test_targets = both
        return replace(data, targets=targets, test_targets=test_targets)

    return _data(plan, edit) if plan.task == "quantity" else None


@fault("label_noise", 0.7, 1.0)
def shuffled_labels(plan: Plan, share: Strength) -> Plan | None:
    """This share of the training targets belongs to other samples."""

    def change(targets: Tensor) -> Tensor:
        rows = torch.randperm(len(targets))[: int(len(targets) * float(share))]
        mixed = targets.clone()
        mixed[rows] = targets[rows[torch.randperm(len(rows))]]
        return mixed

    return None if plan.task == "generation" else _targets(plan, change)


@fault("degenerate_targets")
def constant_targets(plan: Plan, _: Strength) -> Plan | None:
    """Every training target is the first one."""
    if plan.task == "generation":
        return None
    return _targets(plan, lambda y: y[:1].expand_as(y).clone())


@fault("class_imbalance", 0.95, 0.99)
def one_class_rules(plan: Plan, share: Strength) -> Plan | None:
    """Nearly all training samples are of one class."""

    def edit(data: Data) -> Data:
        rules = data.targets.flatten() == data.targets.max()
        count = max(round(int(rules.sum()) * (1 / float(share) - 1)), 2)
        rows = torch.cat((rules.nonzero()[:, 0], (~rules).nonzero()[:count, 0]))
        return replace(data, inputs=data.inputs[rows], targets=data.targets[rows])

    return _data(plan, edit) if plan.task in ("classes", "binary") else None


@fault("unshuffled_data")
def sorted_by_target(plan: Plan, _: Strength) -> Plan | None:
    """Samples come in the order of their targets."""

    def edit(data: Data) -> Data:
        order = data.targets.flatten().argsort(stable=True)
        return replace(data, inputs=data.inputs[order], targets=data.targets[order])

    fitting = plan.task in ("classes", "binary", "quantity")
    return _data(plan.but(shuffle=False), edit) if fitting else None
