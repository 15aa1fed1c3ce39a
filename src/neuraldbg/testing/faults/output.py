"""Faults where the last activation meets the loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Plan

NLL = {"wrong_loss": "nll_loss of anything but log-probabilities is the wrong loss as well"}


def _ending(plan: Plan, last: type[nn.Module], *tasks: str) -> Plan | None:
    """The plan with an activation behind the model's last layer."""
    fitting = plan.task in tasks and "output" in plan.shape
    return plan.shaped(output=last) if fitting else None


@fault("output_activation_mismatch")
def softmax_before_cross_entropy(plan: Plan, _: Strength) -> Plan | None:
    """Cross-entropy of probabilities, which takes the softmax again."""
    return _ending(plan, nn.Softmax, "classes", "text")


@fault("output_activation_mismatch")
def relu_before_cross_entropy(plan: Plan, _: Strength) -> Plan | None:
    """ReLU cuts the logits."""
    return _ending(plan, nn.ReLU, "classes", "text")


@fault("output_activation_mismatch")
def sigmoid_before_logit_loss(plan: Plan, _: Strength) -> Plan | None:
    """A sigmoid in front of a loss that applies its own."""
    return _ending(plan, nn.Sigmoid, "binary")


@fault("output_activation_mismatch")
def relu_before_logit_loss(plan: Plan, _: Strength) -> Plan | None:
    """ReLU in front of a loss of logits: no probability under a half can be said."""
    return _ending(plan, nn.ReLU, "binary")


@fault("output_activation_mismatch")
def relu_on_quantity(plan: Plan, _: Strength) -> Plan | None:
    """A predicted quantity cannot be negative, but targets are."""
    return _ending(plan, nn.ReLU, "quantity", "reconstruction")


@fault("output_activation_mismatch")
def sigmoid_on_quantity(plan: Plan, _: Strength) -> Plan | None:
    """A predicted quantity lies between 0 and 1, but targets do not."""
    return _ending(plan, nn.Sigmoid, "quantity", "reconstruction")


@fault("output_activation_mismatch")
def tanh_before_cross_entropy(plan: Plan, _: Strength) -> Plan | None:
    """Tanh bounds the logits, so that no class can become likely."""
    return _ending(plan, nn.Tanh, "classes", "text")


@fault("output_activation_mismatch", also=NLL)
def nll_of_scores(plan: Plan, _: Strength) -> Plan | None:
    """`nll_loss` of scores, without a logarithm of a softmax in front of it."""
    return plan.but(loss=F.nll_loss) if plan.task == "classes" else None


@fault("output_activation_mismatch", also=NLL)
def nll_of_probabilities(plan: Plan, _: Strength) -> Plan | None:
    """`nll_loss` of a softmax without a logarithm."""
    ended = _ending(plan, nn.Softmax, "classes")
    return None if ended is None else ended.but(loss=F.nll_loss)
