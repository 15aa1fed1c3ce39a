"""Semantic events: what a series of numbers means, and when its meaning changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neuraldbg.core.facts import Scalar


class EventType(StrEnum):
    """What changed."""

    GRADIENT = "gradient_health_transition"
    ACTIVATION = "activation_health_transition"
    UPDATE = "update_health_transition"
    LOSS = "loss_health_transition"
    DATA = "data_anomaly"
    NONFINITE = "nonfinite_value"


class GradientHealth(StrEnum):
    """State of the gradient at a module's output or of a parameter."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    VANISHING = "vanishing"
    EXPLODING = "exploding"
    ZERO = "zero"
    ABSENT = "absent"
    NONFINITE = "nonfinite"


class ActivationHealth(StrEnum):
    """State of a module's output."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    DEAD = "dead"
    SATURATED = "saturated"
    COLLAPSED = "collapsed"
    EXPLODING = "exploding"
    VANISHING = "vanishing"
    NONFINITE = "nonfinite"


class UpdateHealth(StrEnum):
    """How the optimizer's step relates to the weight it changes."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    FROZEN = "frozen"
    TINY = "tiny"
    HUGE = "huge"


class LossHealth(StrEnum):
    """What the loss is doing."""

    UNKNOWN = "unknown"
    IMPROVING = "improving"
    STALLED = "stalled"
    RISING = "rising"
    DIVERGING = "diverging"
    OSCILLATING = "oscillating"
    SPIKING = "spiking"
    NONFINITE = "nonfinite"


@dataclass(frozen=True, slots=True)
class SemanticEvent:
    """A change of meaning at one place and step.

    Attributes:
        id: Unique within a run and stable between diagnoses of the same run file.
        kind: What changed.
        where: Module, parameter, batch or loss, by the user's own name.
        step: The first step at which the new state holds.
        before, after: Members of the health enumeration of that kind.
        confidence: How sure the detector is, 0..1.
        metadata: The numbers behind it.
    """

    id: str
    kind: EventType
    where: str
    step: int
    before: str
    after: str
    confidence: float = 1.0
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
