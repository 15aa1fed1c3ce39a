"""Changes of the output and the loss."""

from __future__ import annotations

from neuraldbg.experiments.interventions import LOOP, MODEL, intervention

intervention(
    "no_output_activation",
    "identity in place of the last activation",
    causes="output_activation_mismatch wrong_loss",
    unless="the model does not end in an activation",
    side_effects="metrics that expect probabilities see raw outputs",
    size=MODEL,
    eager=True,
)
intervention(
    "fitting_output",
    "the input of the loss brought into the form that it expects",
    causes="output_activation_mismatch wrong_loss",
    unless="the form fits, or the loss is not one of torch.nn.functional",
    side_effects="none",
    size=LOOP,
)
intervention(
    "cross_entropy",
    "cross-entropy in place of the squared error on classes",
    causes="wrong_loss output_activation_mismatch",
    unless="the targets of the squared or absolute error are no classes",
    side_effects="the scale of loss and gradients changes",
    size=LOOP,
    rescales=True,
)
intervention(
    "equal_shapes",
    "prediction and target brought to one shape before they are compared",
    causes="loss_shape_broadcast",
    unless="no two tensors of equal size are broadcast against each other",
    side_effects="outer differences that are wanted become plain ones",
    size=LOOP,
    eager=True,
)
intervention(
    "mean_reduction",
    "the mean in place of the sum in the loss",
    causes="loss_reduction_scale",
    unless="the loss sums nothing",
    side_effects="with plain SGD the effective step shrinks by the number of entries",
    size=LOOP,
    eager=True,
    rescales=True,
)
intervention(
    "sum_per_sample",
    "errors summed over each sample's entries and averaged over the batch",
    causes="loss_reduction_scale",
    unless="no error is averaged over the entries of a sample",
    side_effects="the scale of that term grows by the number of entries",
    size=LOOP,
    rescales=True,
)
intervention(
    "accumulate_mean",
    "gradients averaged over the backward passes of a step",
    causes="loss_reduction_scale",
    unless="no step has more than one backward pass",
    side_effects="none",
    size=LOOP,
)
intervention(
    "clamp_operands",
    "the operands of log, sqrt, exp, division and their kin kept in their safe range",
    causes="nonfinite_operation",
    unless="no such operation is met with gradients",
    side_effects="values outside the range pass no gradient",
    size=MODEL,
    eager=True,
)
