"""Taps: what sits on a module boundary, and the operator that carries numbers out.

Inside a compiled graph a tap is one call of the operator `neuraldbg::look`. It returns
nothing, is registered as an ordered effect (so no compiler pass may drop, reorder or
repeat it) and finds its sink through a global table by a slot number that travels as a
tensor: were it a Python number, identical blocks would be compiled once each. In eager
mode the same sink is called directly.

The switch is a plain attribute of a global object. Dynamo guards on it, which gives two
cached graphs: one with the taps and one without a trace of them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType

from neuraldbg.torch.views import ViewGradient

Sink = Callable[[Tensor], None]

SINKS: Final[dict[int, Sink]] = {}
IN_GRAPH: Final[set[int]] = set()  # slots that compiled code has sent to
_numbers = itertools.count()


class Switch:
    """Whether taps look in this step."""

    on = False


SWITCH: Final = Switch()

_LIBRARY: Final = torch.library.Library("neuraldbg", "DEF")


def _deliver(value: Tensor, slot: Tensor) -> None:
    sink = SINKS.get(int(slot))
    if sink is not None:
        sink(value)


def _deliver_from_graph(value: Tensor, slot: Tensor) -> None:
    IN_GRAPH.add(int(slot))
    _deliver(value, slot)


_LIBRARY.define("look(Tensor value, Tensor slot) -> ()")
_LIBRARY.impl("look", _deliver_from_graph, "CompositeExplicitAutograd")
torch.library.register_fake("neuraldbg::look", lambda value, slot: None, lib=_LIBRARY)
_register_effectful_op("neuraldbg::look", EffectType.ORDERED)


class Slot:
    """A numbered place that tensors are sent to, until `close_slot` forgets it.

    Args:
        sink: Receives each tensor; must not raise.
    """

    __slots__ = ("number", "tensor")

    def __init__(self, sink: Sink) -> None:
        self.number = next(_numbers)
        # On the CPU whatever the default device: reading it must wait for nothing.
        self.tensor = torch.tensor(self.number, device="cpu")
        SINKS[self.number] = sink


def close_slot(number: int) -> None:
    """Forget the sink of a slot; tensors that still arrive are dropped. Safe to call twice."""
    SINKS.pop(number, None)
    IN_GRAPH.discard(number)


def look(value: Tensor, slot: Tensor) -> None:
    """Send a tensor to a slot, from eager code or from inside a graph."""
    if torch.compiler.is_compiling():
        torch.ops.neuraldbg.look(value, slot)
    else:
        _deliver(value, slot)


def is_training_code() -> bool:
    """Whether this code runs in earnest, or is traced to be compiled and run.

    What is exported, traced by TorchScript or transformed by functorch is left as it is.
    """
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting()
    return not torch._C._is_tracing() and torch._C._functorch.peek_interpreter_stack() is None


def first_tensor(value: Any) -> Tensor | None:  # noqa: ANN401 - any module output
    """The first floating tensor in a module's output, or None.

    Looks into tuples, lists, dicts and dataclasses, one level of nesting deep. Among a
    scalar and larger tensors (a model that returns its loss first) the larger wins.
    """
    found = [t for t in flatten(value) if t.is_floating_point()]
    larger = [t for t in found if t.dim() > 0]
    return larger[0] if larger else (found[0] if found else None)


def flatten(value: Any, depth: int = 2) -> list[Tensor]:  # noqa: ANN401 - any module output
    """The tensors in a nested structure, in order, at most `depth` levels down."""
    if isinstance(value, Tensor):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, f.name) for f in fields(value)]
    else:
        return []
    return [t for part in parts for t in flatten(part, depth - 1)]


class Tap:
    """Base of everything that we register on a module.

    A copy of a tap is inert and a pickled tap comes back as a standard-library no-op, so
    copies and checkpoints of a watched model work, also where NeuralDBG is not installed.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Tap:
        return Tap()

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")

    fault: Callable[[Exception], None] | None = None

    def __call__(self, *args: Any) -> None:  # noqa: ANN401 - hook signatures vary
        """Look, and let no error of ours out. What is traced into a graph stays as it is."""
        # First and cheapest: the way of every call in a step that is not looked at.
        if not SWITCH.on and torch.is_grad_enabled():
            return
        if torch.compiler.is_compiling():
            self.at(*args)
            return
        try:
            self.at(*args)
        except Exception as error:
            if self.fault is not None:
                self.fault(error)

    def at(self, *args: Any) -> None:  # noqa: ANN401 - hook signatures vary
        """Look at a boundary, in a due step or without gradient; a copy does nothing."""


class ModuleTap(Tap):
    """Forward hook that sends a module's output, its gradient and its input to slots.

    Args:
        output, gradient: Slots as tensors.
        source: Slot of the input, or None.

    Attributes:
        unseen: Eager calls in training mode without gradient (a checkpointed block).
    """

    def __init__(self, output: Tensor, gradient: Tensor, source: Tensor | None) -> None:
        self.output = output
        self.gradient = gradient
        self.source = source
        self.unseen = 0

    def at(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ANN401
        """Look at the boundary, on due steps of training only."""
        if not torch.is_grad_enabled():
            if not torch.compiler.is_compiling() and module.training:
                self.unseen += 1
            return
        if not is_training_code():
            return
        if self.source is not None:
            given = first_tensor(args)
            if given is not None and given.numel() > 0:
                look(given, self.source)
        value = first_tensor(output)
        if value is None or value.numel() == 0:
            look(self.output, self.output)  # it was called, that is all
            return
        look(value, self.output)
        # A hook on a leaf would stay there for good.
        if not value.requires_grad or value.is_leaf:
            return
        if not torch.compiler.is_compiling() and value._is_view():
            ViewGradient(value, self.on_gradient)
        else:
            value.register_hook(self.on_gradient)

    def on_gradient(self, gradient: Tensor) -> None:
        """Look at the gradient with respect to the output."""
        if torch.compiler.is_compiling():
            look(gradient, self.gradient)
            return
        try:
            look(gradient, self.gradient)
        except Exception as error:
            if self.fault is not None:
                self.fault(error)


class InputTap(Tap):
    """Forward pre-hook of the whole model: its input tensors, and evaluation passes.

    Args:
        inputs: Slots for the first tensors among the arguments.
        train, evaluation: Slots for the first input of passes without gradient, by training flag.
    """

    def __init__(self, inputs: list[Tensor], train: Tensor, evaluation: Tensor) -> None:
        self.inputs = inputs
        self.train = train
        self.evaluation = evaluation

    def at(self, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        """Look at the batch on due steps; always count passes without gradient."""
        if not is_training_code():
            return
        if not torch.is_grad_enabled():
            mark = self.train if module.training else self.evaluation
            given = next((t for t in flatten((args, kwargs), 3) if t.numel() > 0), mark)
            look(given, mark)
        else:
            for given, slot in zip(flatten((args, kwargs), 3), self.inputs, strict=False):
                if given.numel() > 0:
                    look(given, slot)


class PredictionTap(Tap):
    """Forward hook of the whole model: what it predicts.

    Args:
        slot: Receives the first floating output.
    """

    def __init__(self, slot: Tensor) -> None:
        self.slot = slot

    def at(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ANN401
        """Look at the prediction on due steps of training."""
        if torch.is_grad_enabled() and is_training_code():
            value = first_tensor(output)
            if value is not None and value.numel() > 0:
                look(value, self.slot)
