"""The names of what is measured. Spokes write them, the Hub reads them.

Streams: `STEP` holds a few cheap scalars of every step; `LOOK` holds everything that
is read on due steps only.
"""

from __future__ import annotations

from typing import Final

STEP: Final = "step"
LOOK: Final = "look"

# Module sites, forward: statistics of the output over all calls of the step.
ACT_MEAN: Final = "act_mean"
ACT_RMS: Final = "act_rms"
ACT_ABSMAX: Final = "act_absmax"
ACT_LOW: Final = "act_low"
ACT_HIGH: Final = "act_high"
ACT_ZERO: Final = "act_zero"  # share of exact zeros
ACT_NEGATIVE_UNITS: Final = "act_negative_units"  # share of units never above zero
ACT_CONSTANT_UNITS: Final = "act_constant_units"  # share of units equal for all samples
ACT_FLAT: Final = "act_flat"  # share of values in the flat region of the activation
ACT_NONFINITE: Final = "act_nonfinite"  # count

# Module sites, input of the module (modules with parameters only).
IN_RMS: Final = "in_rms"
IN_ABSMAX: Final = "in_absmax"
IN_ZERO: Final = "in_zero"
IN_DEAD_UNITS: Final = "in_dead_units"  # share of input units that are zero for all samples
IN_FLAT: Final = "in_flat"  # share in the flat region, where the range tells a sigmoid or tanh
IN_NONFINITE: Final = "in_nonfinite"

# Module sites, backward: the gradient of the loss with respect to the module's output.
GRAD_MEAN: Final = "grad_mean"
GRAD_RMS: Final = "grad_rms"
GRAD_ABSMAX: Final = "grad_absmax"
GRAD_ZERO: Final = "grad_zero"
GRAD_NONFINITE: Final = "grad_nonfinite"

# Parameter sites, read next to the optimizer step. Gradients are as the optimizer sees
# them: unscaled and clipped.
P_GRAD: Final = "grad_norm"  # Euclidean norm; absent if the gradient is None
P_GRAD_NONE: Final = "grad_none"  # 1 if the gradient is None
P_GRAD_NONFINITE: Final = "grad_nonfinite"  # 1 if the norm is not finite
P_WEIGHT: Final = "weight_norm"
P_UPDATE: Final = "update_norm"
P_RATIO: Final = "update_ratio"  # norm of the update over norm of the weight
P_STILL: Final = "still"  # share of sampled entries that the step did not change
P_ALIGN: Final = "update_align"  # cosine of the update with the negative gradient
P_ROWS: Final = "row_spread"  # distance of the rows over the weight's scale (suspects only)
P_COSINE: Final = "grad_cosine"  # cosine with the gradient of the previous look

# Batch sites: `input`, `input.1`, ... and `target`.
B_MEAN: Final = "mean"
B_STD: Final = "std"
B_ABSMAX: Final = "absmax"
B_LOW: Final = "low"
B_HIGH: Final = "high"
B_NONFINITE: Final = "nonfinite"
B_SIZE: Final = "size"
B_FEATURE_SPREAD: Final = "feature_spread"  # largest over median feature scale
B_FEATURE_RMS: Final = "feature_rms"  # largest root mean square of a feature
B_SAMPLE_STD: Final = "sample_std"  # spread between samples, over the batch's own scale
B_REPEATED: Final = "repeated"  # share of samples that equal an earlier one of the batch
B_EVEN_AXIS: Final = "even_axis"  # axis of a sample along which nothing changes; 0 if there is none
B_OUTLIER: Final = "outlier"  # largest |value| over the batch's root mean square
B_FINGERPRINT: Final = "fingerprint"  # equal batches have equal fingerprints
B_DISTINCT: Final = "distinct"  # number of distinct labels or values
B_MAJORITY: Final = "majority"  # share of the most frequent label
B_ENTROPY: Final = "entropy"  # of the labels of the batch, in nats
B_TRANSITIONS: Final = "transitions"  # share of neighbouring samples with different labels

# Prediction sites (kind LOSS): `prediction`.
L_VALUE: Final = "value"  # STEP stream: the loss itself
L_PRED_MEAN: Final = "prediction_mean"
L_PRED_STD: Final = "prediction_std"
L_PRED_SAMPLE_STD: Final = "prediction_sample_std"  # between samples
L_PRED_ABSMAX: Final = "prediction_absmax"
# Kind LOSS, `attention.0`, ...: the largest weight of a row, averaged over rows; 1 is one-hot.
L_ATTENTION_PEAK: Final = "attention_peak"

# Optimizer sites, STEP stream. Sites: `0.1` is group 1 of optimizer 0, `0` the optimizer.
O_LR: Final = "lr"
O_CLIP_NORM: Final = "clip_norm"  # norm before clipping
O_CLIP_LIMIT: Final = "clip_limit"
O_CARRIED: Final = "grad_carried"  # LOOK: norm of gradients left over when backward began
O_SCALE: Final = "loss_scale"
O_SCHEDULED: Final = "scheduler_steps"  # steps that a scheduler has taken

# Run site, STEP stream.
R_SECONDS: Final = "step_seconds"
R_BACKWARDS: Final = "backwards"  # backward calls in this step
R_RANK_SPREAD: Final = "rank_spread"  # LOOK: spread of the parameters over the ranks
COMPILED_GAP: Final = "compiled_gap"  # LOOK, module sites: distance from eager in roundings

# Run notes (RunFact.notes).
N_BACKWARDS: Final = "backwards"
N_STEPS: Final = "optimizer_steps"
N_AUTOCAST: Final = "autocast"
N_SCALER: Final = "scaler"
N_RENEWED: Final = "optimizers_made_anew"  # for the parameters of one before
N_EXCEPTION: Final = "exception"
N_EVAL_FORWARDS: Final = "no_grad_forwards"
N_EVAL_TRAIN_MODE: Final = "no_grad_forwards_in_train_mode"
N_EVAL_AGAIN: Final = "no_grad_forwards_of_the_same_input"  # in training mode
EVAL_COMPARED: Final = 256  # so many passes are compared, and a device is seldom waited for
N_CLIP_BEFORE_UNSCALE: Final = "clips_of_scaled_gradients"
N_SCHEDULER: Final = "scheduler"
N_ENVIRONMENT: Final = "env."  # prefix: a variable that decides how the run computes
