"""Changes inside the model, made on module boundaries."""

from __future__ import annotations

from neuraldbg.experiments.interventions import MODEL, SETTING, intervention

intervention(
    "relu_activations",
    "ReLU in place of sigmoid and tanh between the layers",
    causes="saturating_activation",
    unless="the model has no sigmoid or tanh before its last layer",
    side_effects="gates and attention that need values between 0 and 1 lose them",
    size=MODEL,
    eager=True,
)
intervention(
    "normalise_layers",
    "the output of each hidden layer normalised for each sample",
    causes="depth_without_normalization saturating_activation",
    unless="the model has no hidden layers",
    side_effects="a different, better conditioned model",
    size=MODEL,
)
intervention(
    "insert_relu",
    "ReLU after each hidden layer",
    causes="missing_nonlinearity",
    unless="the model has no hidden layers",
    side_effects="a different model",
    size=MODEL,
)
intervention(
    "group_norm",
    "statistics over each sample in place of the batch's in batch normalisation",
    causes="batchnorm_small_batch",
    unless="the model has no batch normalisation",
    side_effects="evaluation no longer uses running statistics",
    size=MODEL,
)
intervention(
    "dropout_0.1",
    "dropout at 0.1 at most",
    causes="excessive_dropout",
    unless="no dropout above 0.1 is used",
    side_effects="less regularisation",
    size=SETTING,
)
intervention(
    "bounded_attention",
    "queries and keys normalised, or attention logits bounded",
    causes="unstable_attention",
    unless="no attention was met",
    side_effects="attention that is sharp on purpose is softened",
    size=MODEL,
    eager=True,
)
