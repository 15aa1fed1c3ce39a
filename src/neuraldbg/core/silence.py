"""Gradients that are exactly zero behind a place where one still arrives.

A gradient may be small; it is exactly zero only where something multiplies it by zero. Dead
and saturated units do, weights of zero do, and so do a rounding, a comparison or a compiler
that loses it. The first three are seen otherwise; what is left is a fault of the path.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuraldbg.core import metrics as m
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import ModuleFact
from neuraldbg.core.view import NORMALISATION, WEIGHT_LAYERS, View

LOOKS = 3  # readings, all zero, that are no accident of one batch
HALVES = frozenset({"float16", "bfloat16"})
# States that stop a gradient by themselves.
STOPPED = frozenset({"dead", "collapsed", "saturated", "nonfinite"})
# Library layers that pass a gradient on wherever their output is alive.
ELEMENTWISE = frozenset({"ReLU", "LeakyReLU", "GELU", "SiLU", "ELU", "Tanh", "Sigmoid", "Identity"})
POOLING = frozenset({"MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d"})
PASSING = ELEMENTWISE | POOLING | NORMALISATION | WEIGHT_LAYERS | {"Flatten", "Unflatten"}


@dataclass(frozen=True, slots=True)
class Silence:
    """Layers whose gradient is exactly zero.

    Attributes:
        layers: The silenced modules with parameters, the one nearest to the loss first.
        nearest: The next module, in order of execution, that does receive a gradient.
        passed_by: Whether that is a library layer right behind in a sequence, which by its
            definition passes a gradient on.
        step: The first look.
    """

    layers: tuple[str, ...]
    nearest: str
    passed_by: bool
    step: int


def silenced(view: View) -> Silence | None:
    """The layers that are trained with nothing but zeros; None if there are none."""
    if any(e.kind == EventType.ACTIVATION and e.after in STOPPED for e in view.events):
        return None
    weights = view.weights
    if any(not p.init_rms or p.dtype in HALVES for p in weights):
        return None
    order = {x.name: x for x in view.record.called() if x.leaf}
    quiet = [x for n, x in order.items() if silent(view, n)]
    heard = [x for n, x in order.items() if _hears(view, n)]
    if not quiet or not heard:
        return None
    last = max(quiet, key=_place)
    same = [x for x in heard if view.root_of(x.name) == view.root_of(last.name)]
    later = [x for x in same if _place(x) > _place(last)]
    # A head whose loss counts nothing is silent too, but what it shares with others is not.
    if not later or any(view.params_of(x.name) for x in same if x not in later):
        return None
    nearest = min(later, key=_place)
    names = tuple(x.name for x in sorted(quiet, key=_place, reverse=True))
    by = nearest.kind in PASSING and _follows(view, last, nearest)
    return Silence(names, nearest.name, by, _first_look(view, last.name))


def _place(module: ModuleFact) -> int:
    return module.order or 0


def silent(view: View, module: str) -> bool:
    """Whether all parameters of a module get a gradient of exactly zero at every look."""
    held = [p for p in view.params_of(module) if p.optimizer is not None and p.requires_grad]
    return bool(held) and all(always_zero(view, p.name, LOOKS) for p in held)


def always_zero(view: View, param: str, looks: int) -> bool:
    """Whether a gradient was exactly zero at every look, of which there were so many at least."""
    norms = view.param(param, m.P_GRAD).values
    return len(norms) >= looks and not norms.any()


def _hears(view: View, module: str) -> bool:
    """Whether a gradient arrives at a module's output."""
    rms = view.module(module, m.GRAD_RMS).finite().values
    return len(rms) >= LOOKS and float(rms.max()) > 0


def _follows(view: View, giver: ModuleFact, taker: ModuleFact) -> bool:
    """Whether one runs right behind the other in a sequence."""
    parent, other = giver.name.rpartition(".")[0], taker.name.rpartition(".")[0]
    kind = next((x.kind for x in view.facts.modules if x.name == parent), "")
    leaves = [x for x in view.record.called() if x.leaf]
    return parent == other and kind == "Sequential" and leaves[leaves.index(giver) + 1] is taker


def _first_look(view: View, module: str) -> int:
    steps = [view.param(p.name, m.P_GRAD).steps for p in view.params_of(module)]
    return int(min((s[0] for s in steps if len(s)), default=0))
