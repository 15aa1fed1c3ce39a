"""More units where a model is narrowest."""

from __future__ import annotations

from neuraldbg.experiments.interventions import MODEL, intervention

intervention(
    "widen",
    "the narrowest hidden layers widened to 64 units",
    causes="insufficient_capacity",
    unless="no linear or convolutional layer under 64 units passes its output to another one "
    "(through activations, pooling and batch normalisation only)",
    side_effects="a larger model, in which a bottleneck that is there on purpose is gone, too; at "
    "its start it computes the same; where its width is written into the script's code, it crashes",
    size=MODEL,
)
