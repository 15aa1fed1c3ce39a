"""Non-finite values that the user's own operations make."""

from __future__ import annotations

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Kind
from neuraldbg.core.offender import first_nonfinite, offender
from neuraldbg.core.view import View


@cause(
    "nonfinite_operation",
    "An operation of the user's own code makes a non-finite value from finite ones.",
    explains="nonfinite",
    chain=(
        "a logarithm, root, division or exponential meets an input outside its range",
        "it gives NaN or infinity, or an infinite slope",
        "backward spreads it to every weight",
    ),
    repair="Clamp the input of that operation (log(x.clamp_min(1e-6)), sqrt(x + eps), exp(x.clamp(max=...))).",
    experiment="clamp that input",
    rivals={
        "nonfinite_input": "there the data already holds the non-finite value",
        "lr_too_high": "there the weights explode first",
    },
    yields_to="nonfinite_input outlier_batch lr_schedule half_precision_overflow",
)
def _nonfinite_operation(view: View) -> Finding | None:
    first_bad = first_nonfinite(view)
    if first_bad is None:
        return None
    hazards = [
        e
        for e in view.events
        if e.kind == EventType.NONFINITE and e.after == "hazard" and e.step <= first_bad + 1
    ]
    inputs = [
        s
        for name, s in view.record.each(Kind.BATCH, m.B_NONFINITE)
        if name.startswith("input") and s.values.max() > 0
    ]
    found = []
    if hazards:
        e = hazards[0]
        found.append(
            evidence(
                f"{e.metadata['operation']} near the loss: {e.metadata['trouble']} at step {e.step}",
                5.5,
                where=e.where,
                step=e.step,
            )
        )
    made = None if hazards else offender(view, first_bad)
    if made is not None:
        place = made.where[0] if made.where else None
        found.append(evidence(made.text, made.weight, where=place, step=made.step))
    if not found:
        return None
    if inputs:
        found.append(evidence("the input itself holds non-finite values", -6.0))
    found.append(
        evidence(
            f"the loss or a gradient is not finite from step {first_bad} on", 1.5, step=first_bad
        )
    )
    exploded = _exploded_before(view, first_bad)
    if exploded > 1:
        found.append(evidence(f"updates were {exploded:.2g} of the weights before", -2.0))
    if _diverging(view, first_bad):
        found.append(evidence("the loss had grown tenfold before", -2.5))
    own = () if made is None else made.where
    where = tuple(dict.fromkeys((*own, *_feeding(view))))
    return Finding(
        tuple(found),
        where,
        hazards[0].step if hazards else first_bad,
        found[0].text[0].upper() + found[0].text[1:] + ".",
    )


def _exploded_before(view: View, step: int) -> float:
    tops = [
        s.between(0, step - 1).finite().values
        for s in (view.param(p.name, m.P_RATIO) for p in view.weights)
    ]
    values = [float(np.max(v[-3:])) for v in tops if len(v)]
    return float(np.median(values)) if values else 0.0


def _diverging(view: View, step: int) -> bool:
    """Whether the loss was far above its start when the first non-finite value came."""
    values = view.path.series.between(0, step - 1).finite().values
    return len(values) > 3 and float(values[-1]) > 10 * abs(float(values[0])) + 1e-12


def _feeding(view: View) -> tuple[str, ...]:
    """The layers nearest to the loss with the largest outputs: what the operation received."""
    scored = []
    for x in view.layers[-4:]:
        high = view.module(x.name, m.ACT_ABSMAX).values[:3]
        scored.append((float(np.nan_to_num(high, posinf=1e30).max()) if len(high) else 0.0, x.name))
    return tuple(n for _, n in sorted(scored, reverse=True))
