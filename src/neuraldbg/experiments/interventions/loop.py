"""Changes of the training loop: what happens around backward and step."""

from __future__ import annotations

from neuraldbg.experiments.interventions import LOOP, MODEL, intervention

_NO_STEP = "the script never takes an optimizer step"

intervention(
    "zero_grad",
    "gradients set to None after each optimizer step",
    causes="missing_zero_grad",
    unless=_NO_STEP,
    side_effects="code that reads gradients after the step finds none",
    size=LOOP,
)
intervention(
    "step_after_backward",
    "an optimizer step after each backward pass",
    causes="missing_optimizer_step",
    unless="the script makes no optimizer",
    side_effects="gradient accumulation over several backward passes is undone",
    size=LOOP,
)
intervention(
    "optimize_all",
    "every parameter that the loss reaches given to the optimizer",
    causes="params_not_optimized",
    unless="the optimizer holds all parameters that the loss reaches",
    side_effects="they share the settings of the optimizer's first group",
    size=LOOP,
)
intervention(
    "unfreeze",
    "requires_grad=True for every parameter of the model",
    causes="frozen_params",
    unless="no parameter is frozen",
    side_effects="parameters that were frozen on purpose train, too",
    size=LOOP,
)
intervention(
    "no_detach",
    "detach() without effect inside the model and in the loss",
    causes="broken_graph",
    unless="nothing is detached while the loss is computed",
    side_effects="stop-gradients that are wanted are lifted as well",
    size=MODEL,
    eager=True,
)
intervention(
    "checkpoint_nonreentrant",
    "activation checkpointing in its non-reentrant form",
    causes="broken_graph frozen_params",
    unless="the script uses no activation checkpointing",
    side_effects="none on the numbers",
    size=LOOP,
)
intervention(
    "negate_loss",
    "the sign of every gradient turned",
    causes="wrong_update_sign",
    unless=_NO_STEP,
    side_effects="none",
    size=LOOP,
)
intervention(
    "train_mode",
    "the model in training mode in every pass with gradients",
    causes="eval_mode_training",
    unless="no pass with gradients runs in evaluation mode",
    side_effects="layers kept in evaluation mode on purpose train their statistics, too",
    size=LOOP,
    eager=True,
)
intervention(
    "eval_mode",
    "the model in evaluation mode in every pass without gradients",
    causes="train_mode_inference",
    unless="no pass without gradients runs in training mode",
    side_effects="Monte Carlo dropout is switched off as well",
    size=LOOP,
    eager=True,
    evaluates=True,
)
