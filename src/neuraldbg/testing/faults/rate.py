"""Faults of the learning rate and its schedule."""

from __future__ import annotations

import math

from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, MultiStepLR, StepLR

from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.plan import Plan


def _times(plan: Plan, factor: Strength) -> Plan:
    return plan.set(lr=float(plan.settings["lr"]) * float(factor))


@fault(
    "lr_too_high",
    10,
    100,
    1000,
    also={"exploding_recurrence": "in a recurrent net a rate too high is seen as explosion"},
)
def rate_too_high(plan: Plan, factor: Strength) -> Plan:
    """The rate is a multiple of the sound one."""
    return _times(plan, factor)


@fault("exploding_recurrence", 1.0, 1.05)
def unclipped(plan: Plan, gain: Strength) -> Plan | None:
    """A recurrent net that needs clipping goes without it."""
    return plan.shaped(gain=float(gain)).but(clip=None) if "gain" in plan.shape else None


@fault("lr_too_low", 0.03, 0.003, 1e-5)
def rate_too_low(plan: Plan, factor: Strength) -> Plan:
    """The rate is a fraction of the sound one."""
    return _times(plan, factor)


@fault("lr_schedule", 0.7, 0.9)
def decays_every_step(plan: Plan, factor: Strength) -> Plan:
    """A decay that was meant per epoch is taken at each step."""
    gamma = float(factor)
    return plan.but(schedule=lambda optimizer: ExponentialLR(optimizer, gamma), schedule_period=1)


@fault("lr_schedule", 5)
def step_decay_every_batch(plan: Plan, size: Strength) -> Plan:
    """`StepLR` in epochs, stepped after each batch."""
    wait = int(size)
    return plan.but(schedule=lambda optimizer: StepLR(optimizer, wait, 0.3), schedule_period=1)


@fault("lr_schedule", 0.02)
def milestones_in_steps(plan: Plan, share: Strength) -> Plan:
    """Milestones in epochs, stepped after each batch: the rate is gone at once."""
    first = max(int(plan.steps * float(share)), 2)
    marks = [first, 2 * first, 3 * first]
    return plan.but(schedule=lambda optimizer: MultiStepLR(optimizer, marks), schedule_period=1)


@fault("lr_schedule", 0.1, 0.03)
def cosine_too_short(plan: Plan, share: Strength) -> Plan:
    """A cosine that is at zero after a small share of the run, and stays there."""
    length = max(int(plan.steps * float(share)), 2)

    def rate(step: int) -> float:
        return 0.5 + 0.5 * math.cos(math.pi * min(step / length, 1.0))

    return plan.but(schedule=lambda optimizer: LambdaLR(optimizer, rate), schedule_period=1)


@fault(
    "lr_schedule",
    1.1,
    1.3,
    also={"lr_too_high": "what the rate grows to is too high"},
)
def rate_grows(plan: Plan, factor: Strength) -> Plan:
    """A multiplier above one where a decay was meant."""
    gamma = float(factor)
    return plan.but(schedule=lambda optimizer: ExponentialLR(optimizer, gamma), schedule_period=1)
