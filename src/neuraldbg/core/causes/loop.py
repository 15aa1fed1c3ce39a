"""Faults of the training loop: zero_grad, step, what the optimizer holds, what is cut off."""

from __future__ import annotations

from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.initialisation import untrained
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import Kind, ParamFact
from neuraldbg.core.offender import first_nonfinite
from neuraldbg.core.raised import raised
from neuraldbg.core.view import View

# Gradients left over in this share of the looks are no accident of one step.
ALWAYS = 0.8


@cause(
    "missing_zero_grad",
    "Gradients are never set to zero, so each step follows the sum of all gradients so far.",
    explains="diverged huge_updates not_learning nonfinite exploding",
    chain=(
        "gradients of earlier steps are still there when backward begins",
        "the step follows a growing sum instead of the current gradient",
        "the loss swings around its minimum or diverges",
    ),
    repair="Call optimizer.zero_grad() before each loss.backward() (or right after each step).",
    experiment="zero gradients before each backward",
    rivals={"lr_too_high": "the gradient at the start of backward is zero there"},
    references=("PyTorch tutorials: zeroing out gradients",),
    needs_update=True,
)
def _missing_zero_grad(view: View) -> Finding | None:
    for index, left in view.record.each(Kind.OPTIMIZER, m.O_CARRIED):
        left = left.finite()
        if len(left) < 2:
            continue
        present = left.values > 0
        if present.mean() < ALWAYS:
            continue
        growth = float(left.values[-1] / max(left.values[0], 1e-30))
        text = (
            f"when backward began, gradients of norm {np.median(left.values):.3g} were left over "
            f"from earlier steps, in {int(present.sum())} of {len(left)} looks"
        )
        found: list[Evidence] = [
            evidence(text, 9.0, step=int(left.steps[0]), left=float(left.values[0]))
        ]
        if growth > 3:
            found.append(evidence(f"they grew {growth:.3g}-fold over the run", 0.5))
        return Finding(
            tuple(found),
            first_step=int(left.steps[0]),
            summary=f"Optimizer {index} steps on gradients that were never zeroed."
            if index != "0"
            else "The gradients are never zeroed between optimizer steps.",
        )
    return None


@cause(
    "missing_optimizer_step",
    "Gradients are computed, but no optimizer step uses them.",
    explains="not_learning frozen",
    chain=("backward fills the gradients", "no step follows", "the weights stay as they were"),
    repair="Call optimizer.step() after each backward pass.",
    experiment="step after each backward",
    rivals={"params_not_optimized": "there the optimizer steps, on other parameters"},
    needs_update=True,
)
def _missing_optimizer_step(view: View) -> Finding | None:
    backwards, steps = view.count(m.N_BACKWARDS), view.count(m.N_STEPS)
    if steps > 0:
        return _never_steps(view) or _steps_cease(view)
    if backwards < 3:
        return None
    still = [view.usual(s) for _, s in view.record.each(Kind.PARAM, m.P_STILL)]
    if still and min(still) < 1:
        return None
    found = [evidence(f"{backwards} backward passes and not one optimizer step", 8.5, step=0)]
    if still:
        found.append(evidence("the weights are bit for bit what they were at the start", 1.0))
    if view.note(m.N_SCALER) and first_nonfinite(view) is not None:
        found.append(
            evidence("a loss scaler skipped the steps, for their gradients overflow", -8.0)
        )
    return Finding(
        tuple(found), first_step=0, summary=f"No optimizer step in {backwards} backward passes."
    )


# Backward passes in a row without a step, and their share of the run: accumulation and the
# gradients of an attack or an explanation are shorter, or not the larger part of a training.
UNUSED: Final = 50
UNUSED_SHARE: Final = 0.3


def _last_steps(view: View) -> dict[str, int]:
    """The last step of each optimizer, by its index."""
    return {
        name.partition(".")[0]: int(s.steps[-1])
        for name, s in view.record.each(Kind.OPTIMIZER, m.O_LR)
        if len(s)
    }


def _never_steps(view: View) -> Finding | None:
    """An optimizer that was made and never steps, beside one that does, for weights in use."""
    idle = {i for i, o in enumerate(view.facts.optimizers) if not o.steps}
    held = [
        p
        for p in view.facts.params
        if p.optimizer in idle
        and p.requires_grad
        and view.module(p.module, m.GRAD_RMS).median() > 0
        and not len(view.param(p.name, m.P_UPDATE))
    ]
    most = max(o.steps for o in view.facts.optimizers) if view.facts.optimizers else 0
    if not held or most < UNUSED:
        return None
    names = modules_of(held)
    text = (
        f"an optimizer holds {len(held)} parameters that get gradients and never steps, while "
        f"another steps {most} times"
    )
    found = (evidence(text, 6.0, where=names[0], step=0), view.fails(1.5, 1.0))
    told = f"The optimizer of {listed(names)} is never stepped."
    return Finding(found, names, 0, told)


def _steps_cease(view: View) -> Finding | None:
    """Optimizers that stepped once, and no longer, while backward passes go on."""
    passes = view.record.series(Kind.RUN, "", m.R_BACKWARDS)
    ends = _last_steps(view)
    went = passes.steps[passes.values > 0]
    if not len(went) or not ends or view.note(m.N_SCALER):
        return None
    last = max(ends.values())
    idle = int(np.sum(went > last))
    if idle < UNUSED or idle < UNUSED_SHARE * len(went):
        return None
    text = f"no optimizer stepped after step {last}, and {idle} backward passes followed"
    found = (evidence(text, 6.5, step=last + 1), view.fails(1.5, 2.0))
    told = (
        f"The optimizer stops at step {last}: {idle} backward passes after it are without effect."
    )
    repair = "Find the condition that the call of optimizer.step() depends on; it no longer holds."
    return Finding(found, first_step=last + 1, summary=told, repair=repair)


@cause(
    "params_not_optimized",
    "Parameters that receive gradients are in no optimizer.",
    explains="not_learning frozen",
    chain=(
        "the loss sends gradients to these parameters",
        "the optimizer does not hold them",
        "they keep their initial values",
    ),
    repair="Build the optimizer from the parameters of the model that is trained, after it is "
    "complete (keep sub-modules in nn.ModuleList, not in a Python list).",
    experiment="add them to the optimizer",
    rivals={
        "broken_graph": "there the parameters are in the optimizer and get no gradient",
        "frozen_params": "there requires_grad is False",
    },
    needs_update=True,
)
def _params_not_optimized(view: View) -> Finding | None:
    if not any(o.steps for o in view.facts.optimizers):
        return None
    reached = [p for p in view.facts.params if p.reached and p.requires_grad]
    missing = [p for p in reached if p.optimizer is None]
    if not missing:
        return _left_behind(view, reached)
    share = sum(p.numel for p in missing) / max(sum(p.numel for p in reached), 1)
    hidden = [p for p in missing if not p.registered]
    stale = sum(o.foreign for o in view.facts.optimizers)
    names = modules_of(hidden or missing)
    text = f"{len(missing)} parameters ({share:.0%} of those that the loss reaches) are in no optimizer"
    found = [evidence(text, _forgotten(share), where=names[0], step=0, share=share)]
    if hidden:
        found.append(
            evidence(
                f"{len(hidden)} of them are not registered with the model at all "
                f"({names[0]} is kept where parameters() does not look)", 4.0, where=names[0])
        )  # fmt: skip
    head = view.layers[-1].name if view.layers else ""
    if share <= 0.5 and head in names:
        found.append(evidence(f"{head}, the last layer, is among them", 2.0, where=head))
    if stale:
        found.append(
            evidence(f"the optimizer holds {stale} parameters that no trained model has", 3.0)
        )
    found.append(view.fails(1.5, 1.0))
    return Finding(
        tuple(found), names, 0, f"{listed(names)} gets gradients but is in no optimizer."
    )


def _forgotten(share: float) -> float:
    """How surely a share of the weights was forgotten: a head alone may be trained on purpose.

    Of some 200 runs of `bench/cases` and the public ones only faulty ones leave any out.
    """
    return 6.0 if share > 0.99 else 2.5 + share if share > 0.5 else 4.0


def _left_behind(view: View, reached: list[ParamFact]) -> Finding | None:
    """Parameters that get gradients, and whose only optimizer stepped for the last time before."""
    ends = _last_steps(view)
    later = max(ends.values(), default=0)
    behind = {
        p: ends[str(p.optimizer)]
        for p in reached
        if (end := ends.get(str(p.optimizer))) is not None
        and later - end >= UNUSED
        and _waits(view, p, end)
    }
    if not behind:
        return None
    names, last = modules_of(list(behind)), max(behind.values())
    text = (
        f"{len(behind)} parameters get gradients until the end, and the optimizer that holds them "
        f"stepped for the last time at step {last} of {later + 1}"
    )
    found = (evidence(text, 4.5, where=names[0], step=last + 1), view.fails(1.5, 4.0))
    told = f"{listed(names)} gets gradients, but the optimizer that still steps does not hold it."
    return Finding(found, names, last + 1, told)


def _waits(view: View, param: ParamFact, step: int) -> bool:
    """Whether after a step its module gets gradients, and no optimizer reads its own."""
    heard = view.module(param.module, m.GRAD_RMS).finite()
    # A model that became a part of another one goes on under the longer name.
    names = [p.name for p in view.facts.params if f".{p.name}".endswith(f".{param.name}")]
    read = np.concatenate([view.param(name, m.P_GRAD).steps for name in names])
    return bool(np.any((heard.steps > step) & (heard.values > 0))) and not np.any(read > step)


@cause(
    "frozen_params",
    "Parameters that the task needs have requires_grad=False.",
    explains="not_learning",
    chain=(
        "the parameters want no gradient",
        "only the rest can learn",
        "the rest cannot fit the task",
    ),
    repair="Set requires_grad_(True) on the layers that must learn.",
    experiment="unfreeze",
    yields_to="broken_graph params_not_optimized",
)
def _frozen_params(view: View) -> Finding | None:
    everything = _all_frozen(view)
    if everything is not None:
        return everything
    called = {x.name for x in view.record.called()}
    frozen = [
        p
        for p in view.facts.params
        if not p.requires_grad and p.module in called and not _moves(view, p)
    ]
    total = sum(p.numel for p in view.facts.params)
    share = sum(p.numel for p in frozen) / max(total, 1)
    if share < 0.05:
        return None
    names = modules_of(frozen)
    found = [
        evidence(
            f"{share:.0%} of the parameters have requires_grad=False",
            1.0 + 1.5 * share,
            where=names[0],
        ),
        view.fails(2.0, 4.0),
    ]
    found += _untrained(frozen)
    if any(p.optimizer is not None for p in frozen):
        found.append(evidence("an optimizer holds some of them, to train them", 0.5))
    return Finding(
        tuple(found), names, 0, f"{listed(names)} is frozen ({share:.0%} of all parameters)."
    )


def _moves(view: View, param: ParamFact) -> bool:
    """Whether an optimizer moves it all the same: it is frozen for a part of each step only."""
    return view.usual(view.param(param.name, m.P_UPDATE)) > 0


def _untrained(frozen: list[ParamFact]) -> list[Evidence]:
    """Whether frozen weights are what the library starts layers with, or were trained."""
    name = untrained(frozen)
    if name is None:
        return []
    if not name:
        return [evidence("the frozen weights are not those that a layer starts with", -1.5)]
    text = f"{name} is frozen at what the library starts it with: it was never trained"
    return [evidence(text, 3.0, where=name)]


def _all_frozen(view: View) -> Finding | None:
    """Backward raised because not one parameter wants a gradient."""
    no_gradient = raised(view, "does not require grad", "backward found nothing to differentiate")
    params = view.facts.params
    if no_gradient is None or not params or any(p.requires_grad for p in params):
        return None
    text = f"all {len(params)} parameters have requires_grad=False"
    return Finding(
        # Told apart from a cut graph, whose parameters do want a gradient.
        (no_gradient, evidence(text, 3.0, where=params[0].name)),
        modules_of(list(params))[::-1],
        no_gradient.step,
        f"{text[0].upper()}{text[1:]}.",
    )


def modules_of(params: list[ParamFact]) -> tuple[str, ...]:
    """The modules that own parameters, without repetition."""
    return tuple(dict.fromkeys(p.module or p.name for p in params))


def listed(names: tuple[str, ...]) -> str:
    """`a`, `a and b`, or `a and 3 more`."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} more"
