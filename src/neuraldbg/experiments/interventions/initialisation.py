"""Changes of the weights and biases before the first step."""

from __future__ import annotations

from neuraldbg.experiments.interventions import MODEL, intervention

_UNLESS = "no model is known before its first forward pass"

intervention(
    "default_init",
    "the default initialisation of every layer",
    causes="init_too_large init_too_small init_symmetric bad_bias_init",
    unless=_UNLESS,
    side_effects="pretrained weights are lost; other draws of the same distribution change, too",
    size=MODEL,
)
intervention(
    "unit_gain_init",
    "every weight rescaled to keep the variance of the signal (1 / sqrt(fan-in))",
    causes="init_too_large init_too_small init_symmetric",
    unless=_UNLESS,
    side_effects="pretrained weights are rescaled as well",
    size=MODEL,
)
intervention(
    "zero_biases",
    "all biases 0 at the start",
    causes="bad_bias_init",
    unless="no layer has a bias that is not 0",
    side_effects="biases set on purpose (a prior, a forget gate) are lost",
    size=MODEL,
)
