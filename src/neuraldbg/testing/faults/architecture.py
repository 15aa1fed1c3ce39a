"""Faults of the architecture: activations, depth, width, normalisation, dropout, attention."""

from __future__ import annotations

from torch import nn

from neuraldbg.testing.faults import Strength, fault
from neuraldbg.testing.loop import measured
from neuraldbg.testing.plan import Course, Plan


def _shaped(plan: Plan, name: str, value: object) -> Plan | None:
    """The plan with another argument of its model, if it takes that."""
    return plan.shaped(**{name: value}) if name in plan.shape else None


@fault("saturating_activation", 4, 8)
def sigmoid_stack(plan: Plan, depth: Strength) -> Plan | None:
    """Many plain hidden layers with sigmoids between them."""
    if not plan.stacked or plan.shape.get("norm") is not None:
        return None
    return plan.shaped(depth=int(depth), activation=nn.Sigmoid)


@fault("depth_without_normalization", 16, 30)
def plain_depth(plan: Plan, depth: Strength) -> Plan | None:
    """Many plain hidden layers."""
    plain = plan.stacked and plan.shape.get("norm") is None
    return _shaped(plan, "depth", int(depth)) if plain else None


@fault("depth_without_normalization", 8, 16)
def blocks_without_paths(plan: Plan, blocks: Strength) -> Plan | None:
    """Residual blocks lose their skip paths and their normalisation."""
    if "skip" not in plan.shape:
        return None
    return plan.shaped(skip=False, norm=None, blocks=int(blocks))


@fault("depth_without_normalization", 16)
def norms_left_out(plan: Plan, depth: Strength) -> Plan | None:
    """A deep stack loses its batch normalisation."""
    if not plan.stacked or plan.shape.get("norm") is None:
        return None
    return plan.shaped(norm=None, depth=int(depth))


@fault("missing_nonlinearity")
def no_activation(plan: Plan, _: Strength) -> Plan | None:
    """Nothing between the layers."""
    return _shaped(plan, "activation", None)


@fault("excessive_dropout", 0.8, 0.97)
def heavy_dropout(plan: Plan, share: Strength) -> Plan | None:
    """Most of the signal is dropped."""
    return _shaped(plan, "dropout", float(share))


@fault("insufficient_capacity", 2, 1)
def narrow(plan: Plan, width: Strength) -> Plan | None:
    """A width of one or two."""
    return None if "heads" in plan.shape else _shaped(plan, "width", int(width))


@fault("batchnorm_small_batch", 2)
def tiny_batches(plan: Plan, size: Strength) -> Plan | None:
    """Batch normalisation over a handful of samples."""
    norm = plan.shape.get("norm")
    return plan.but(batch=int(size)) if norm in (nn.BatchNorm1d, nn.BatchNorm2d) else None


@fault("unstable_attention", 4.0, 20.0)
def unscaled_attention(plan: Plan, scale: Strength) -> Plan | None:
    """Attention logits are multiplied instead of divided by the root of the width."""
    return _shaped(plan, "scale", float(scale))


def _worse_in_training_mode(plan: Plan, course: Course) -> bool:
    course.model.eval()
    proper = measured(plan, course.model, course.data)
    gap = proper - course.metric if plan.rising else course.metric - proper
    return gap > 0.02 * abs(proper)


@fault("train_mode_inference", 0.3, 0.5, shows=_worse_in_training_mode)
def evaluates_in_train_mode(plan: Plan, dropout: Strength) -> Plan | None:
    """Evaluation never calls `eval()`, while dropout is at work."""
    dropped = _shaped(plan, "dropout", float(dropout))
    return None if dropped is None else dropped.but(evaluates_in_eval=False)
