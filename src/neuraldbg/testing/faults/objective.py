"""Faults of the loss itself: the wrong one, its shapes, its reduction, its operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.testing.edits import Stage, put
from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Plan

Loss = Callable[[Any, Tensor], Tensor]


def _squared_indices(scores: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(scores, targets[:, None].float().expand_as(scores))


@fault("wrong_loss")
def squared_error_on_indices(plan: Plan, _: Strength) -> Plan | None:
    """A squared error on class indices."""
    return plan.but(loss=_squared_indices) if plan.task == "classes" else None


def _squared_probabilities(scores: Tensor, targets: Tensor) -> Tensor:
    wanted = F.one_hot(targets, scores.shape[-1]).float()
    return F.mse_loss(scores.softmax(-1), wanted)


@fault(
    "wrong_loss",
    also={"output_activation_mismatch": "softmax and squared error do not belong together"},
)
def squared_error_on_softmax(plan: Plan, _: Strength) -> Plan | None:
    """A squared error between probabilities and one-hot classes."""
    return plan.but(loss=_squared_probabilities) if plan.task == "classes" else None


@fault("wrong_loss")
def cross_entropy_of_one_output(plan: Plan, _: Strength) -> Plan | None:
    """Cross-entropy over a single class, which is always zero."""
    return plan.but(loss=F.cross_entropy) if plan.task == "binary" else None


@fault("wrong_loss")
def logit_loss_on_quantity(plan: Plan, _: Strength) -> Plan | None:
    """A loss of probabilities on a quantity that is none."""
    fitting = plan.task == "quantity"
    return plan.but(loss=F.binary_cross_entropy_with_logits) if fitting else None


@fault("loss_shape_broadcast")
def flat_targets(plan: Plan, _: Strength) -> Plan | None:
    """Targets of shape (N,) against predictions of shape (N, 1)."""
    if plan.task != "quantity":
        return None
    loss = plan.loss
    return plan.but(loss=lambda output, targets: loss(output, targets.squeeze(-1)))


@fault("loss_shape_broadcast")
def flat_predictions(plan: Plan, _: Strength) -> Plan | None:
    """Predictions of shape (N,) against targets of shape (N, 1)."""
    if plan.task != "quantity":
        return None
    loss = plan.loss
    return plan.but(loss=lambda output, targets: loss(output.squeeze(-1), targets))


def _cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(output, targets, reduction="sum")


def _text(output: Tensor, targets: Tensor) -> Tensor:
    return _cross_entropy(output.flatten(0, 1), targets.flatten())


def _binary(output: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output, targets, reduction="sum")


def _squared(output: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(output, targets, reduction="sum")


SUMMED: dict[str, Loss] = {
    "classes": _cross_entropy,
    "text": _text,
    "binary": _binary,
    "quantity": _squared,
}


@fault(
    "loss_reduction_scale",
    also={"lr_too_high": "a summed loss is a rate that is too high by the batch size"},
)
def summed_loss(plan: Plan, _: Strength) -> Plan | None:
    """The loss is summed over the batch."""
    loss = SUMMED.get(plan.task)
    return None if loss is None else plan.but(loss=loss)


@fault(
    "loss_reduction_scale",
    1,
    2,
    also={"lr_too_low": "a loss divided too often is a rate that is too low"},
)
def divided_again(plan: Plan, times: Strength) -> Plan | None:
    """A mean is divided by the batch size once (or twice) more."""
    loss, divisor = plan.loss, plan.batch ** int(times)
    return plan.but(loss=lambda output, targets: loss(output, targets) / divisor)


@fault(
    "loss_reduction_scale",
    also={"lr_too_high": "gradients that add up are a rate that is too high by their number"},
)
def accumulates_sums(plan: Plan, _: Strength) -> Plan | None:
    """Sixteen backward passes are added up and never divided."""
    if plan.loop is not None or plan.batch < 16:
        return None
    return plan.but(accumulate=16, batch=plan.batch // 4, averages=False)


@fault("loss_reduction_scale")
def averaged_error_summed_divergence(plan: Plan, _: Strength) -> Plan | None:
    """The squared error of an autoencoder is a mean, its divergence a sum."""
    if plan.task != "reconstruction":
        return None

    def loss(output: tuple[Tensor, Tensor, Tensor], pixels: Tensor) -> Tensor:
        made, mean, log_variance = output
        spread = 1 + log_variance - mean.square() - log_variance.exp()
        return F.mse_loss(made, pixels) - 0.5 * spread.sum()

    return plan.but(loss=loss)


def _log_of_softmax(scores: Tensor, targets: Tensor) -> Tensor:
    chosen = scores.softmax(-1).log()
    return -(F.one_hot(targets, scores.shape[-1]) * chosen).sum(-1).mean()


def _log_of_sigmoid(scores: Tensor, targets: Tensor) -> Tensor:
    p = torch.sigmoid(scores)
    return -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()


@fault("nonfinite_operation", 30, 300)
def logarithm_of_zero(plan: Plan, sharpness: Strength) -> Plan | None:
    """A cross-entropy written by hand, on scores that a sharpness makes large."""
    loss = {"classes": _log_of_softmax, "binary": _log_of_sigmoid}.get(plan.task)
    if loss is None:
        return None
    return plan.but(loss=lambda output, targets: loss(output * float(sharpness), targets))


@fault("nonfinite_operation")
def root_of_zero(plan: Plan, _: Strength) -> Plan | None:
    """A distance written as a root has an infinite slope at zero."""
    if plan.task not in ("quantity", "classes", "binary"):
        return None
    loss = plan.loss

    def rooted(output: Tensor, targets: Tensor) -> Tensor:
        excess = F.relu(output.abs() - 50)
        return loss(output, targets) + 0.01 * excess.square().sum(-1).sqrt().mean()

    return plan.but(loss=rooted)


@fault("nonfinite_operation")
def division_by_zero(plan: Plan, _: Strength) -> Plan | None:
    """Errors are weighed by the share of a group that a batch may lack."""
    if plan.task not in ("quantity", "classes", "binary"):
        return None
    loss = plan.loss

    def weighed(output: Tensor, targets: Tensor) -> Tensor:
        rare = targets.flatten() >= targets.max()
        part = loss(output[rare], targets[rare])
        spread = output[rare].std(0).mean()
        return loss(output, targets) + 0.01 * part / spread

    return plan.but(loss=weighed)


@fault("nonfinite_operation", 30, 300)
def exponential_overflow(plan: Plan, factor: Strength) -> Plan | None:
    """The exponential of a logarithmic variance that nothing bounds."""
    if plan.task != "reconstruction":
        return None

    def edit(model: nn.Module) -> nn.Module:
        head = model.get_submodule("log_variance")
        put(model, "log_variance", Stage(head, lambda x: x * float(factor)))
        return model

    return plan.edited(edit)
