"""Changes of number formats and of compilation."""

from __future__ import annotations

from neuraldbg.experiments.interventions import LOOP, PRECISION, intervention

intervention(
    "float32",
    "float32 in place of every half-precision format",
    causes="half_precision_overflow half_precision_underflow low_precision_update "
    "optimizer_misconfigured",
    unless="nothing is in half precision",
    side_effects="the trial needs twice the memory",
    size=PRECISION,
    eager=True,
)
intervention(
    "scale_loss",
    "the loss multiplied by 1024 and gradients divided by it before the step",
    causes="half_precision_underflow",
    unless="the script never takes an optimizer step",
    side_effects="large gradients can overflow",
    size=LOOP,
)
intervention(
    "eager",
    "eager execution in place of the compiled model",
    causes="compiler_divergence",
    unless="nothing is compiled",
    side_effects="slower",
    size=PRECISION,
    eager=True,
)
