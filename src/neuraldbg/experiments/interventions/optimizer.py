"""Changes of the optimizer's settings and of gradient clipping."""

from __future__ import annotations

from neuraldbg.experiments.interventions import SETTING, intervention

_NO_STEP = "the script never takes an optimizer step"

intervention(
    "no_weight_decay",
    "weight decay 0",
    causes="excessive_weight_decay",
    unless="no optimizer has weight decay",
    side_effects="none",
    size=SETTING,
)
intervention(
    "momentum_0.9",
    "momentum and beta1 at 0.9",
    causes="excessive_momentum",
    unless="no optimizer has momentum",
    side_effects="for plain SGD the effective rate lr / (1 - momentum) falls with it",
    size=SETTING,
)
intervention(
    "default_settings",
    "the optimizer's default settings, but for the learning rate and weight decay",
    causes="optimizer_misconfigured",
    unless="the settings are the default already",
    side_effects="all of them change at once",
    size=SETTING,
)
intervention(
    "no_clipping",
    "no gradient clipping",
    causes="excessive_clipping",
    unless="the script does not clip through torch.nn.utils",
    side_effects="gradients that clipping tamed can explode",
    size=SETTING,
)
intervention(
    "clip_1",
    "the gradient norm clipped to 1",
    causes="exploding_recurrence",
    unless=_NO_STEP,
    side_effects="large steps of other origin are tamed, too; non-finite gradients are dropped",
    size=SETTING,
)
intervention(
    "unscale_before_clip",
    "gradients unscaled before they are clipped",
    causes="clip_before_unscale",
    unless="the script does not both clip and scale the loss",
    side_effects="none",
    size=SETTING,
)
