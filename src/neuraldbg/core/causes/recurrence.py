"""Faults of recurrence."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.view import View


@cause(
    "exploding_recurrence",
    "Gradients through time explode and are not clipped.",
    explains="nonfinite diverged exploding huge_updates not_learning",
    chain=(
        "the recurrence multiplies the signal at every time step",
        "gradients grow exponentially with the sequence",
        "one step throws the weights far away",
    ),
    repair="Clip the gradient norm (torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)) or shorten the sequence.",
    experiment="clip to norm 1",
    rivals={"lr_too_high": "there a feed-forward model fails as well"},
    references=("Pascanu et al., On the difficulty of training RNNs, 2013",),
    yields_to="nonfinite_input unnormalized_input missing_zero_grad init_too_large",
)
def _exploding_recurrence(view: View) -> Finding | None:
    # The most: where gradients are accumulated, the step that ends it may have fewer.
    counted = view.record.series(Kind.RUN, "", m.R_BACKWARDS).finite().values
    passes = max(float(counted.max()), 1.0) if len(counted) else 1.0
    repeated = [x for x in view.layers if x.calls >= 5 * passes or x.kind in ("LSTM", "GRU", "RNN")]
    if not repeated or view.trouble.level == 0:
        return None
    clipped = len(view.record.series(Kind.OPTIMIZER, "0", m.O_CLIP_LIMIT)) > 0
    module = max(repeated, key=lambda x: np.nan_to_num(_grad(view, x.name), nan=-1.0))
    grad = _grad(view, module.name)
    found = [
        evidence(
            f"{module.name} is applied {module.calls} times in a step", 1.0, where=module.name
        ),
        view.fails(1.5, 5.0),
        evidence("no gradient clipping was seen", 0.5)
        if not clipped
        else evidence("gradients are clipped", -3.0),
    ]
    if view.trouble.kind in ("nonfinite", "diverged"):
        found.append(evidence("the run diverges", 1.5))
    if not math.isnan(grad):
        weight = float(np.clip(1.5 * math.log10(max(grad, 1e-6) / 10.0), -2.0, 3.0))
        found.append(
            evidence(f"the gradient norm of its weights is {grad:.3g}", weight, where=module.name)
        )
    return Finding(
        tuple(found),
        (module.name,),
        view.trouble.step,
        f"Gradients through {module.name} explode over time steps.",
    )


def _grad(view: View, module: str) -> float:
    """The largest early gradient norm of a module's parameters; NaN if none was read."""
    norms = [view.param(p.name, m.P_GRAD).finite().values[:5] for p in view.params_of(module)]
    tops = [float(v.max()) for v in norms if len(v)]
    return max(tops, default=math.nan)
