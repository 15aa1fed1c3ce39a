"""Biases that outweigh what the layer computes."""

from __future__ import annotations

import math

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import ParamFact
from neuraldbg.core.silence import silent
from neuraldbg.core.view import View

BIAS_FAR = 2.0
# Log-odds of a class of one in 3,000: a prior in the last bias (as for a focal loss) is nearer.
BIAS_ALONE = 8.0
# A layer with usual weights gives values around one; a common bias of less may be outgrown.
BIAS_SHUT = -0.5
# Looks that are early, and the share of the largest gradient that is next to none: what a
# variance is made of (its logarithm may start far below zero, too) gets more.
EARLY, FAINT = 3, 1e-2


@cause(
    "bad_bias_init",
    "Biases put units in a dead or saturated region, or the output far from the target.",
    explains="dead saturated not_learning vanishing initial_loss collapsed frozen zero_gradient",
    chain=(
        "the bias outweighs everything the layer computes",
        "units are dead or saturated at step 0",
        "no gradient flows through them",
    ),
    repair="Initialise biases to zero.",
    experiment="zero biases",
    rivals={
        "init_too_large": "there the weights are too large",
        "lr_too_high": "there the units are alive at step 0",
    },
    yields_to="nonfinite_operation nonfinite_input unnormalized_input",
)
def _bad_bias_init(view: View) -> Finding | None:
    gates = _shut(view) or _forgets(view)
    if gates:
        return gates
    far = []
    for p in view.facts.params:
        if not p.name.endswith("bias") or p.init_mean is None or p.init_absmax is None:
            continue
        if abs(p.init_mean) > BIAS_FAR and abs(p.init_mean) > 0.7 * p.init_absmax:
            far.append(p)
    if not far:
        return _one_far_bias(view)
    param = far[0]
    found = [
        evidence(
            f"{param.name} starts at {param.init_mean:.3g} on average",
            2.0,
            where=param.name,
            step=0,
        )
    ]
    ill = [
        e
        for e in view.events
        if e.kind == EventType.ACTIVATION
        and e.before == "unknown"
        and e.after in ("dead", "saturated", "collapsed")
    ]
    if ill:
        found.append(
            evidence(
                f"{ill[0].where} is {ill[0].after} from the first step on",
                3.5,
                where=ill[0].where,
                step=ill[0].step,
            )
        )
    negative = view.usual(view.module(param.module, m.ACT_NEGATIVE_UNITS), 3)
    if negative > 0.9 and not ill:
        found.append(
            evidence(
                f"{negative:.0%} of the units of {param.module} are below zero for whole batches",
                2.0,
                where=param.module,
            )
        )
    closed = _closed(view, param) if negative > 0.9 else None
    found += [view.fails(2.0, 4.5)] if closed is None else [closed, view.fails(2.0, 3.0)]
    names = tuple(dict.fromkeys(p.module for p in far))
    return Finding(
        tuple(found), names, 0, f"The biases of {names[0]} start at {param.init_mean:.3g}."
    )


def _closed(view: View, param: ParamFact) -> Evidence | None:
    """Whether a gate under that bias lets next to nothing through, its gradient included."""
    start = param.init_mean or 0.0
    rates = {x.name: view.usual(view.module(x.name, m.GRAD_RMS), EARLY) for x in view.layers}
    own, most = rates.get(param.module, math.nan), max(rates.values(), default=math.nan)
    if start > -BIAS_ALONE or not own < FAINT * most:
        return None
    text = (
        f"a sigmoid after it lets {1 / (1 + math.exp(min(-start, 500.0))):.1g} through, and its "
        f"gradient at first is {own / most:.1g} of that of the layer with the largest"
    )
    return evidence(text, 2.0, where=param.module, step=0)


def _spread_of(param: ParamFact) -> float:
    """Largest entry over root mean square from which one entry stands out among so many.

    It is the root of their number if all others are zero; 1.7 if they are uniform.
    """
    return 1.3 if param.numel <= 8 else 2.0


def _one_far_bias(view: View) -> Finding | None:
    """A single entry of a bias that outweighs everything else that the layer gives."""
    far = [
        p
        for p in view.facts.params
        if p.name.endswith("bias")
        and len(p.shape) == 1
        and (p.init_absmax or 0.0) > max(BIAS_ALONE, _spread_of(p) * (p.init_rms or 0.0))
    ]
    if not far:
        return None
    param = max(far, key=lambda p: p.init_absmax or 0.0)
    top = param.init_absmax or 0.0
    found = [
        evidence(
            f"an entry of {param.name} starts at {top:.3g}",
            min(2.5 + 1.5 * math.log10(top / BIAS_ALONE), 5.0),
            where=param.name,
            step=0,
        ),
        view.fails(2.0, 1.5),
    ]
    return Finding(
        tuple(found), (param.module, param.name), 0, f"{param.name} starts at {top:.3g}."
    )


def _shut(view: View) -> Finding | None:
    """Gates that a bias closes at the start, and that nothing ever opens: they pass no gradient.

    The rest of the model may learn all the same, so that the loss says little.
    """
    shut = [
        p
        for p in view.facts.params
        if p.name.endswith("bias")
        and (p.init_mean or 0.0) < min(BIAS_SHUT, -_usual(view, p))
        and (p.init_absmax or 0.0) < 1.05 * abs(p.init_mean or 0.0)
        and silent(view, p.module)
        and view.usual(view.module(p.module, m.ACT_NEGATIVE_UNITS)) > 0.95
    ]
    if not shut or all(silent(view, p.module) for p in view.weights):
        return None
    names, start = tuple(p.module for p in shut), shut[0].init_mean
    text = (
        f"the biases of {names[0]} start at {start:.3g}, its values are below zero in whole batches, "
        "and at every look its gradient is exactly zero, while other layers get one"
    )
    found = (evidence(text, 6.5, where=names[0], step=0), view.fails(1.0, 0.5))
    told = f"The biases of {names[0]} start at {start:.3g} and close it for good."
    return Finding(found, names, 0, told)


def _usual(view: View, bias: ParamFact) -> float:
    """The largest bias that PyTorch starts a layer with: one over the root of its inputs."""
    weights = [p for p in view.params_of(bias.module) if len(p.shape) > 1]
    inputs = math.prod(weights[0].shape[1:]) if weights else 0
    return inputs**-0.5 if inputs else 0.0


def _forgets(view: View) -> Finding | None:
    """An LSTM whose biases were all set to zero: its forget gates start at one half.

    What entered is halved in every step; PyTorch's own start differs from unit to unit.
    """
    for module in view.kinds(frozenset({"LSTM"})):
        biases = [p for p in view.params_of(module.name) if "bias" in p.name]
        if not biases or any(p.init_absmax != 0.0 for p in biases) or not view.trouble.level:
            continue
        text = (
            f"all biases of {module.name} start at zero, so its forget gates start at one half: of "
            "what entered, a thousandth is left after ten steps"
        )
        found = (evidence(text, 2.5, where=module.name, step=0), view.fails(2.0, 4.5))
        told = f"The forget gates of {module.name} start at one half."
        repair = "Set the forget gates' biases to 1 or more (the second quarter of bias_ih)."
        return Finding(found, (module.name, biases[0].name), 0, told, repair)
    return None
