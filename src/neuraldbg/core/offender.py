"""The first offender: what made the first non-finite value out of finite ones.

Forward, it is the first module in order of execution whose output is not finite though all
that it received is. Backward, it lies between two modules: at the output of the later one the
gradient is finite, at the output of the earlier one it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from neuraldbg.core import metrics as m
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Kind, ModuleFact
from neuraldbg.core.view import NORMALISATION, WEIGHT_LAYERS, View

OFFENDER: Final = "offender"  # what the event of an offender says came after
# Classes whose backward pass makes nothing non-finite of finite numbers within range.
SOUND: Final = (NORMALISATION | WEIGHT_LAYERS) - {"LSTM", "GRU", "RNN"}
# A gradient of this size is near the end of float32 (3e38, its square is summed): what goes
# beyond that has exploded, and no single operation made it.
LARGE: Final = 1e15
# Outputs below this have not exploded: exp(80) is still a float32.
TAME: Final = 80.0
OUTLYING: Final = 10.0  # largest entry of a batch, over that of the usual batch


@dataclass(frozen=True, slots=True)
class Offender:
    """What made a non-finite value.

    Attributes:
        where: Modules, the likeliest first; empty where it lies between model and loss.
        step: When.
        text: In a sentence, with the step.
        weight: How much it says for an operation of the user's, in nats.
    """

    where: tuple[str, ...]
    step: int
    text: str
    weight: float

    def event(self) -> SemanticEvent:
        """The offender as an event, to be kept with a run in which it was not seen."""
        place = self.where[0] if self.where else "loss"
        return SemanticEvent(
            id=f"offender:{place}:{self.step}",
            kind=EventType.NONFINITE,
            where=place,
            step=self.step,
            before="finite",
            after=OFFENDER,
            metadata={"text": self.text, "weight": self.weight, "named": bool(self.where)},
        )


def first_nonfinite(view: View) -> int | None:
    """The first step with a non-finite loss, gradient or activation."""
    steps = [e.step for e in view.events if e.after == "nonfinite" and e.kind != EventType.DATA]
    if view.path.nonfinite_step is not None:
        steps.append(view.path.nonfinite_step)
    return min(steps, default=None)


def offender(view: View, step: int) -> Offender | None:
    """What made the first non-finite value, if it was looked at.

    Args:
        view: The run.
        step: Its first step with a non-finite value (`first_nonfinite`).
    """
    return forward_offender(view, step) or _backward_offender(view, step) or _kept(view)


def unseen(view: View) -> int | None:
    """The first step with a non-finite value, if what made it fell between two looks."""
    step = first_nonfinite(view)
    if step is None or any(e.kind == EventType.NONFINITE for e in view.events):
        return None
    if not _looked(view, step):
        return step
    # A gradient that breaks in one step breaks the weights, and the loss of the next.
    spoilt = any(_spoilt(view, x, step) for x in view.layers)
    return step if spoilt and step > 0 and not _looked(view, step - 1) else None


def _looked(view: View, step: int) -> bool:
    return any(not math.isnan(_count(view, x, m.ACT_NONFINITE, step)) for x in view.record.called())


def forward_offender(view: View, step: int) -> Offender | None:
    """The first module, in order of execution, that gives or gets a non-finite value.

    It is the offender if what it works on is finite: its weights, and its input. Where the
    input is not read (modules without parameters, blocks), all that ran before it, or inside
    it, tells.
    """
    before = None
    for x in view.record.called():
        out, into = (_count(view, x, k, step) for k in (m.ACT_NONFINITE, m.IN_NONFINITE))
        if out > 0 or into > 0:
            if _spoilt(view, x, step):
                return None
            if into > 0:
                return None if before is None else _in_front(before, x, step)
            return (
                _makes(x, step) if into == 0 or _was_given_finite(view, x, before, step) else None
            )
        before = x if x.leaf and out == 0 else before
    return None


def _spoilt(view: View, module: ModuleFact, step: int) -> bool:
    """Whether the module's own weights were not finite any more."""
    norms = [
        view.param(p.name, m.P_WEIGHT).between(step, step).values
        for p in view.params_of(module.name)
    ]
    return any(len(n) and not math.isfinite(n[0]) for n in norms)


def _was_given_finite(view: View, module: ModuleFact, before: ModuleFact | None, step: int) -> bool:
    if not module.leaf:
        return module.name != ""
    if before is not None:
        return True
    given = view.batch("input", m.B_NONFINITE).between(step, step).values
    return bool(len(given)) and given[0] == 0


def _count(view: View, module: ModuleFact, metric: str, step: int) -> float:
    found = view.module(module.name, metric).between(step, step).values
    return float(found[0]) if len(found) else math.nan


def _makes(module: ModuleFact, step: int) -> Offender:
    name = module.name
    if module.leaf:
        text = f"{name} gives a non-finite value from finite input at step {step}"
        return Offender((name,), step, text, 3.0)
    text = (
        f"{name} gives a non-finite value at step {step}, and all modules inside and "
        "before it gave finite ones: its own arithmetic makes it"
    )
    return Offender((name,), step, text, 4.0)


def _in_front(before: ModuleFact, module: ModuleFact, step: int) -> Offender:
    text = (
        f"what {module.name} is given at step {step} is not finite, and all modules before it "
        f"gave finite values: the code between {before.name} and {module.name} makes it"
    )
    return Offender((module.name, before.name), step, text, 3.0)


def _backward_offender(view: View, step: int) -> Offender | None:
    """Where the backward pass first makes a non-finite gradient out of finite ones."""
    if view.note(m.N_SCALER):
        return None  # a scaler tries scales that overflow, on purpose
    ran = [x for x in view.record.called() if x.leaf]
    if any(_count(view, x, m.ACT_NONFINITE, step) != 0 for x in ran):
        return None  # not looked at, or broken before
    bad = [x for x in ran if _count(view, x, m.GRAD_NONFINITE, step) > 0]
    if not bad:
        return None
    last = bad[-1]
    later = [x for x in ran[ran.index(last) + 1 :] if _count(view, x, m.GRAD_NONFINITE, step) == 0]
    if not later:
        return _at_the_loss(view, last, step)
    size = _count(view, later[0], m.GRAD_ABSMAX, step)
    return _between(last, later[0], step) if 0 < size < LARGE else None


def _at_the_loss(view: View, last: ModuleFact, step: int) -> Offender | None:
    loss = view.record.series(Kind.LOSS, "loss", m.L_VALUE).between(step, step).values
    if not len(loss):
        return None
    if not math.isfinite(loss[0]):
        return _in_the_loss(view, last, step)
    text = (
        f"the loss of step {step} is finite and so is every output, but its gradient at "
        f"{last.name} is not: an operation between {last.name} and the loss has an infinite slope"
    )
    return Offender((last.name,), step, text, 4.0)


def _in_the_loss(view: View, last: ModuleFact, step: int) -> Offender | None:
    """The code of the loss, where all that it was given by the model is of usual size."""
    size = max(_count(view, x, m.ACT_ABSMAX, step) for x in view.layers[-3:])
    target = view.batch("target", m.B_NONFINITE).between(step, step).values
    if not size < TAME or (len(target) and target[0] > 0) or _outlying(view, step):
        return None
    text = (
        f"the loss of step {step} is not finite although every output is, and none is above "
        f"{size:.3g}: what is computed between {last.name} and the loss makes it"
    )
    return Offender((last.name,), step, text, 4.0)


def _outlying(view: View, step: int) -> bool:
    """Whether the batch of a step holds values far beyond those of the others."""
    sizes = view.batch("input", m.B_ABSMAX).finite()
    own = sizes.between(step, step).values
    return bool(len(own)) and own[0] > OUTLYING * sizes.median()


def _between(last: ModuleFact, after: ModuleFact, step: int) -> Offender:
    text = (
        f"in the backward pass of step {step} the gradient is finite at the output of "
        f"{after.name} and not at that of {last.name}, though the forward pass was finite"
    )
    own = (after.name,) if after.kind not in SOUND else ()
    return Offender((*own, last.name), step, text, 2.5 if after.kind in SOUND else 3.0)


def _kept(view: View) -> Offender | None:
    """The offender that a repetition of the run showed."""
    for e in view.events:
        if e.kind == EventType.NONFINITE and e.after == OFFENDER:
            weight = float(e.metadata["weight"] or 0.0)
            where = (e.where,) if e.metadata["named"] else ()
            return Offender(where, e.step, f"{e.metadata['text']} (in a repetition)", weight)
    return None
