"""The path of the gradient: cut, or passed on as nothing but zeros."""

from __future__ import annotations

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.loop import listed, modules_of
from neuraldbg.core.facts import ParamFact
from neuraldbg.core.silence import silenced
from neuraldbg.core.view import View


@cause(
    "broken_graph",
    "The path of the gradient to these parameters is cut.",
    explains="not_learning frozen absent zero_gradient",
    chain=(
        "the module takes part in the forward pass",
        "detach, no_grad, .data, NumPy or argmax cuts the graph behind it",
        "backward never reaches its parameters, and they keep their initial values",
    ),
    repair="Remove the detach()/no_grad()/.data/.item() between this module and the loss (under "
    "reentrant checkpointing, make an input require grad).",
    experiment="restore the path",
    rivals={"params_not_optimized": "there the gradient arrives, but no optimizer holds it"},
)
def _broken_graph(view: View) -> Finding | None:
    constant = _constant(view)
    if constant:
        return constant
    absent = [
        p
        for p in view.facts.params
        if p.requires_grad
        and p.optimizer is not None
        and len(s := view.param(p.name, m.P_GRAD_NONE)) >= 3
        and s.values.min() >= 1
    ]
    used = [p for p in absent if _called(view, p.module)]
    if used and any(p.reached for p in view.facts.params):
        return _never_reached(view, used)
    if used and all(p.reached is False for p in view.facts.params):
        return _reaches_nothing(view, used)
    if any("Normal" in fact.ops for fact in view.facts.losses):
        return _sampled(view)
    return _flat(view)


def _never_reached(view: View, used: list[ParamFact]) -> Finding:
    """Parameters whose module ran, and that never got a gradient while others did."""
    names = modules_of(used)
    feeds = [n for n in names if _feeds(view, n)]
    found = [
        evidence(
            f"{len(used)} parameters that require a gradient and sit in the optimizer never got one",
            3.0, where=names[0], step=0)
    ]  # fmt: skip
    if feeds:
        found.append(
            evidence(
                f"{feeds[0]} runs in the forward pass before modules that do get gradients",
                4.0,
                where=feeds[0],
            )
        )
    if any(_quiet(view, p.module) for p in used):
        found.append(
            evidence(
                f"{names[0]} was called in training, but without gradient recording",
                3.5,
                where=names[0],
            )
        )
    if all(_closes_stack(view, n) for n in names):
        text = f"{names[0]} is in the last block of a stack, whose other blocks get gradients there"
        found.append(evidence(f"{text}: its output may be left unused", -6.0, where=names[0]))
    found.append(view.fails(1.0, 0.5))
    place = (*feeds, *(n for n in names if n not in feeds))
    return Finding(
        tuple(found), place, 0, f"No gradient reaches {listed(place)}: the graph is cut behind it."
    )


def _reaches_nothing(view: View, used: list[ParamFact]) -> Finding:
    """A loss whose graph ends at a tensor that is no parameter."""
    last = [x.name for x in view.layers[-1:]]
    text = (
        f"the graph of the loss reaches no parameter, and none of the {len(used)} that ran and "
        "that the optimizer holds ever got a gradient"
    )
    found = (evidence(text, 7.0, where=next(iter(last), None), step=0), view.fails(1.0, 1.0))
    return Finding(found, tuple(last), 0, text[0].upper() + text[1:] + ".")


def _constant(view: View) -> Finding | None:
    """A loss that wants no gradient at all: backward raises, or does nothing."""
    said = str(view.note(m.N_EXCEPTION) or "")
    if "does not require grad" not in said and (view.loss is None or view.loss.kind != "constant"):
        return None
    if view.facts.params and not any(p.requires_grad for p in view.facts.params):
        return None  # nothing is cut: nothing wants a gradient (`_all_frozen`)
    quiet = [x.name for x in view.facts.modules if x.config.get("no_grad_calls") and x.name]
    last = [x.name for x in view.layers[-1:]]
    text = "the loss depends on no parameter: the graph is cut between the model and the loss"
    found = (evidence(text, 8.0, where=next(iter(quiet or last), None), step=0),)
    return Finding(found, tuple(quiet or last), 0, text[0].upper() + text[1:] + ".")


def _sampled(view: View) -> Finding:
    """A sample of `torch.normal(mean, std)`, which passes no gradient to either of the two.

    The operation is in the graph only where one of them wants a gradient. A likelihood of the
    sample that is weighted by a return gets its gradient on another way, and learns.
    """
    text = "torch.normal draws from a mean or spread that wants a gradient, and passes none on"
    told = "The sample of torch.normal cuts the gradient to what made its mean and spread."
    repair = "Draw by reparametrisation: mean + std * torch.randn_like(std), or rsample()."
    found = (evidence(text, 4.5, step=0), view.fails(1.5, 4.0))
    return Finding(found, (), 0, told, repair)


def _called(view: View, module: str) -> bool:
    fact = view.record.module(module)
    return fact is not None and (
        fact.order is not None
        or _quiet(view, module)
        or bool(
            any(
                x.order is not None
                for x in view.facts.modules
                if module.startswith(x.name + ".") and x.name
            )
        )
    )


def _quiet(view: View, module: str) -> bool:
    """Whether the module or one inside or around it ran in training without gradient."""
    return any(
        x.config.get("no_grad_calls") and x.order is None
        for x in view.facts.modules
        if x.name == module or (x.name and module.startswith(x.name + "."))
    )


def _closes_stack(view: View, module: str) -> bool:
    """Whether it is in the last of several numbered blocks, and all its like get gradients."""
    words = module.split(".")
    numbered = [i for i, word in enumerate(words) if word.isdecimal() and int(word) > 0]
    if not numbered:
        return False
    place = numbered[0]
    like = [
        ".".join([*words[:place], str(i), *words[place + 1 :]]) for i in range(int(words[place]))
    ]
    got = [any(p.reached for p in view.params_of(name)) for name in like]
    after = ".".join([*words[:place], str(int(words[place]) + 1)])
    return all(got) and view.record.module(after) is None


def _feeds(view: View, module: str) -> bool:
    """Whether modules that run later receive a gradient."""
    fact = view.record.module(module)
    if fact is None or fact.order is None:
        return False
    reached = {p.module for p in view.facts.params if p.reached}
    return any(
        x.order > fact.order
        for x in view.facts.modules
        if x.order is not None and x.name in reached
    )


def _flat(view: View) -> Finding | None:
    """Gradients that arrive as exact zeros, for what lies between has no slope."""
    found = silenced(view)
    if found is None or (found.passed_by and view.facts.run.compiled):
        return None  # what a library's layer must pass on, the compiler lost
    text = (
        f"the gradient of {listed(found.layers)} is exactly zero at every look, while "
        f"{found.nearest}, which runs later, gets one and no unit is dead"
    )
    seen = evidence(text, 6.5, where=found.layers[0], step=found.step)
    told = f"What lies behind {listed(found.layers)} has no slope: not one gradient passes."
    repair = (
        "Replace what has zero slope on the way to the loss (round, sign, floor, a comparison, an "
        "autograd.Function that returns zeros) by a smooth or straight-through version."
    )
    return Finding((seen, view.fails(1.0, 0.5)), found.layers, found.step, told, repair)
