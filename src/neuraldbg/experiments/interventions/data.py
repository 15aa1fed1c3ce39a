"""Changes of the batches."""

from __future__ import annotations

from neuraldbg.experiments.interventions import DATA, LOOP, intervention

_NO_MODEL = "the model is not called as a module with a floating-point tensor"

intervention(
    "standardise_input",
    "the input standardised by the statistics of the first batch",
    causes="unnormalized_input",
    unless=_NO_MODEL,
    side_effects="a loss against the raw input (autoencoders) sees another range",
    size=DATA,
    eager=True,
)
intervention(
    "standardise_targets",
    "the targets standardised by the statistics of the first batch",
    causes="unscaled_targets",
    unless="no regression target is met in the loss",
    side_effects="metrics of the script are in other units",
    size=DATA,
    eager=True,
    rescales=True,
)
intervention(
    "fill_nonfinite",
    "NaN and infinite values in inputs and targets replaced by 0",
    causes="nonfinite_input",
    unless=_NO_MODEL,
    side_effects="none on finite batches",
    size=DATA,
    eager=True,
)
intervention(
    "skip_outliers",
    "steps skipped whose batch or loss is far outside what came before",
    causes="outlier_batch",
    unless="no such batch is met",
    side_effects="rare but valid samples are not learnt",
    size=DATA,
    eager=True,
)
intervention(
    "class_weights",
    "classes weighted by the inverse of their frequency",
    causes="class_imbalance",
    unless="the loss is no cross-entropy of torch.nn.functional",
    side_effects="the loss is in other units",
    size=LOOP,
    rescales=True,
)
intervention(
    "shuffle",
    "samples read in random order",
    causes="unshuffled_data",
    unless="batches come neither from a DataLoader nor from slices of tensors",
    side_effects="time series lose their order",
    size=DATA,
    eager=True,
)
