"""Faults of the training loop and of the way gradients reach the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from neuraldbg.testing.edits import Listed, Quiet, Stage, layers, put
from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Params, Plan


@fault("missing_zero_grad")
def never_zeroes(plan: Plan, _: Strength) -> Plan:
    """Gradients add up over the whole run."""
    return plan.but(zeroes=False)


@fault("missing_optimizer_step")
def never_steps(plan: Plan, _: Strength) -> Plan:
    """Backward runs, and no step follows."""
    return plan.but(updates=False)


@fault("params_not_optimized")
def stale_optimizer(plan: Plan, _: Strength) -> Plan:
    """The optimizer holds the parameters of a copy that was made before."""
    return plan.but(trained=lambda model: copy.deepcopy(model).parameters())


@fault("params_not_optimized", 0.5, 0.1)
def last_parameters_only(plan: Plan, share: Strength) -> Plan:
    """The optimizer is given the last parameters only."""

    def trained(model: nn.Module) -> Params:
        every = list(model.parameters())
        return every[-max(round(len(every) * float(share)), 1) :]

    return plan.but(trained=trained)


def _around(plan: Plan, wrap: Callable[[nn.Module], nn.Module], place: Strength) -> Plan:
    """The plan with a wrapper around one of its layers (0 the first, 1 the last)."""

    def edit(model: nn.Module) -> nn.Module:
        names = [n for n, _ in layers(model)]
        name = names[int(float(place) * (len(names) - 1))]
        put(model, name, wrap(model.get_submodule(name)))
        return model

    return plan.edited(edit)


@fault("params_not_optimized", 0.0, 0.5)
def layer_in_a_list(plan: Plan, place: Strength) -> Plan:
    """A layer sits in a plain Python list."""
    return _around(plan, Listed, place)


@fault("broken_graph", 0.5, 0.99)
def detached(plan: Plan, place: Strength) -> Plan:
    """The output of a layer is detached."""
    return _around(plan, lambda layer: Stage(layer, Tensor.detach), place)


def _through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy().copy())


@fault("broken_graph", 0.5, 0.99)
def through_numpy(plan: Plan, place: Strength) -> Plan:
    """The output of a layer takes the way through NumPy."""
    return _around(plan, lambda layer: Stage(layer, _through_numpy), place)


@fault("broken_graph", 0.5, 0.99)
def without_gradient(plan: Plan, place: Strength) -> Plan:
    """A layer runs under `torch.no_grad()`."""
    return _around(plan, Quiet, place)


@fault("frozen_params", 0.7, 0.95)
def frozen(plan: Plan, share: Strength) -> Plan:
    """Most parameters have `requires_grad` switched off."""

    def edit(model: nn.Module) -> nn.Module:
        every = list(model.parameters())
        for param in every[: min(round(len(every) * float(share)), len(every) - 1)]:
            param.requires_grad = False
        return model

    return plan.edited(edit)


@fault("wrong_update_sign")
def negated_loss(plan: Plan, _: Strength) -> Plan:
    """The objective is negated and then minimised."""
    loss = plan.loss
    return plan.but(loss=lambda output, targets: -loss(output, targets))


@fault("wrong_update_sign")
def maximised(plan: Plan, _: Strength) -> Plan:
    """The optimizer is told to maximise."""
    return plan.set(maximize=True)


@fault("eval_mode_training")
def trains_in_eval_mode(plan: Plan, _: Strength) -> Plan:
    """Training runs in evaluation mode from the start."""
    return plan.but(trains_in_eval=True)


@fault("eval_mode_training")
def stays_in_eval_mode(plan: Plan, _: Strength) -> Plan:
    """After the first evaluation nobody calls `train()` again."""
    return plan.but(returns_to_train=False, evaluate_every=5)


@fault("eval_mode_training", 5, 0)
def deep_in_eval_mode(plan: Plan, until: Strength) -> Plan | None:
    """A net that is deep enough to need its batch normalisation leaves training mode."""
    if not plan.stacked or "norm" not in plan.shape or plan.shape.get("dropout"):
        return None
    deep = plan.shaped(depth=12, norm=nn.BatchNorm1d)
    return stays_in_eval_mode(deep, until) if until else trains_in_eval_mode(deep, until)
