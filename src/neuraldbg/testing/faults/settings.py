"""Faults of the optimizer's settings."""

from __future__ import annotations

from torch.optim import SGD, Adam, AdamW, RMSprop

from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Plan

ADAPTIVE = (Adam, AdamW, RMSprop)


def _plain(plan: Plan) -> bool:
    return plan.optimizer is SGD


def _betas(plan: Plan) -> bool:
    return plan.optimizer in (Adam, AdamW)


@fault("excessive_weight_decay", 0.1, 0.5, 1.0)
def decay_too_strong(plan: Plan, share: Strength) -> Plan:
    """Weight decay that alone takes this share of the weights in ten steps."""
    memory = 1 - float(plan.settings.get("momentum", 0.0))
    return plan.set(weight_decay=memory * float(share) / (10 * float(plan.settings["lr"])))


@fault("excessive_momentum", 0.99, 0.999)
def momentum_too_high(plan: Plan, momentum: Strength) -> Plan | None:
    """The iterate overshoots with the momentum's time constant."""
    return plan.set(momentum=float(momentum)) if _plain(plan) else None


@fault("excessive_momentum", 0.99, 0.999)
def beta1_too_high(plan: Plan, beta: Strength) -> Plan | None:
    """The first moment of an adaptive optimizer averages over the whole run."""
    return plan.set(betas=(float(beta), 0.999)) if _betas(plan) else None


@fault("excessive_clipping", 1e-2, 1e-3, 1e-5)
def clipped_too_low(plan: Plan, limit: Strength) -> Plan | None:
    """Every gradient is scaled down by orders of magnitude."""
    return plan.but(clip=float(limit)) if _plain(plan) else None


@fault("optimizer_misconfigured", 0.1, 10)
def eps_too_large(plan: Plan, eps: Strength) -> Plan | None:
    """The constant in the denominator swallows the second moment."""
    return plan.set(eps=float(eps)) if plan.optimizer in ADAPTIVE else None


@fault("optimizer_misconfigured", 0.0, 0.1)
def beta2_too_small(plan: Plan, beta: Strength) -> Plan | None:
    """The second moment forgets at once, so that steps keep only the sign."""
    return plan.set(betas=(0.9, float(beta))) if _betas(plan) else None
