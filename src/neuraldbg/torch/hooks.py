"""Which boundaries are watched, and the one owner of every hook handle."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._C import _current_graph_task_id
from torch.jit import ScriptModule

from neuraldbg.torch.bank import Ledger
from neuraldbg.torch.compile import inside
from neuraldbg.torch.data import is_readable
from neuraldbg.torch.evaluation import Repetition, asked
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.measure import measure
from neuraldbg.torch.taps import IN_GRAPH, InputTap, ModuleTap, PredictionTap, Slot, close_slot

# Containers whose output is their last child's own output, and those that are never
# called: watching them adds nothing.
TRANSPARENT: Final = (
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.ParameterList,
    nn.ParameterDict,
)
CHANNELS_FIRST: Final = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
)
CHANNELS_LAST: Final = (
    nn.Linear,
    nn.LayerNorm,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
    nn.Bilinear,
)
# Modules whose input is looked at as well: what functional code did to the signal
# between two modules shows only there.
READS_INPUT: Final = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.Bilinear)
FLAT_REGION: Final = {nn.Sigmoid: "sigmoid", nn.Tanh: "tanh"}
INPUTS: Final = 4  # tensors among the model's arguments that are looked at


@dataclass(frozen=True, slots=True)
class Boundary:
    """One watched module: its name, unit dimension and activation kind."""

    name: str
    module: nn.Module
    axis: int | None
    flat: str | None
    reads_input: bool


def boundaries(model: nn.Module) -> Iterator[Boundary]:
    """Every module boundary that is watched, in registration order."""
    axis: int | None = -1
    skipped = _never_called(model)
    for name, module in model.named_modules():
        if computes_weight(name) or module in skipped:
            continue
        leaf = next(module.children(), None) is None
        if isinstance(module, CHANNELS_FIRST):
            axis = 1
        elif isinstance(module, CHANNELS_LAST):
            axis = -1
        own = axis if leaf or isinstance(module, CHANNELS_LAST) else None
        flat = FLAT_REGION.get(type(module))
        yield Boundary(name, module, own, flat, isinstance(module, READS_INPUT))


def computes_weight(name: str) -> bool:
    """Whether a module is part of a parametrization: run whenever somebody reads the weight."""
    return "parametrizations" in name.split(".")


def _never_called(model: nn.Module) -> set[nn.Module]:
    """Modules without a call worth a look: containers, wrappers, parts used as data."""
    found: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, (*TRANSPARENT, ScriptModule)) or inside(module) is not None:
            found.add(module)
        if isinstance(module, nn.MultiheadAttention):
            found.add(module.out_proj)
    return found


@dataclass(frozen=True, slots=True)
class Rows:
    """The ledger rows of one boundary."""

    output: int
    gradient: int
    source: int | None


class Hooks:
    """Installs every hook on one model, owns the handles and removes them all.

    Args:
        model: The user's own module, not a compiled wrapper.
        faults: Receives our own errors.
        on_input: Called with (position, tensor) for the model's inputs on due steps.
        on_prediction: Called with the model's output on due steps.
    """

    def __init__(
        self,
        model: nn.Module,
        faults: Faults,
        on_input: Callable[[int, Tensor], None],
        on_prediction: Callable[[Tensor], None],
    ) -> None:
        self.faults = faults
        self.seconds = 0.0
        self.evaluations = {True: 0, False: 0}
        self.again = Repetition()
        self._asked: Tensor | None = None
        self.rows: dict[str, Rows] = {}
        self.taps: dict[str, ModuleTap] = {}
        self._slots: list[int] = []  # their numbers
        self._handles: list[Any] = []
        found = list(boundaries(model))
        self.ledger = Ledger(3 * len(found))
        if any(isinstance(module, ScriptModule) for module in model.modules()):
            faults.gap("TorchScript modules", "they take no hooks")
        if any(computes_weight(name) for name, _ in model.named_modules()):
            faults.gap("parametrizations", "they compute a weight; only the weight is read")
        try:
            for i, boundary in enumerate(found):
                self._install_tap(boundary, 3 * i)
            if not isinstance(model, ScriptModule):
                self._install_root(model, on_input, on_prediction)
        except Exception:
            self.close()
            raise

    def _install_tap(self, b: Boundary, row: int) -> None:
        source = row + 2 if b.reads_input else None
        self.rows[b.name] = Rows(row, row + 1, source)
        tap = ModuleTap(
            self._slot(_Recorder(self, row, b.axis, b.flat)),
            # A gradient that is not finite shows in the exact norms of the parameters as well.
            self._slot(_Recorder(self, row + 1, None, None, scan=False)),
            None if source is None else self._slot(_Recorder(self, source, b.axis, "bounded")),
        )
        tap.fault = self._fault
        self.taps[b.name] = tap
        self._handles.append(b.module.register_forward_hook(tap))

    def _install_root(
        self,
        model: nn.Module,
        on_input: Callable[[int, Tensor], None],
        on_prediction: Callable[[Tensor], None],
    ) -> None:
        def input_sink(position: int) -> Callable[[Tensor], None]:
            return lambda value: on_input(position, value.detach())

        def count(training: bool) -> Callable[[Tensor], None]:  # noqa: FBT001
            def sink(value: Tensor) -> None:
                self.evaluations[training] += 1
                if training:
                    self.again.see(value)
                elif self._asked is None:
                    self._asked = asked(value)

            return sink

        inputs = [self._slot(self._timed("inputs", input_sink(i))) for i in range(INPUTS)]
        passes = (self._slot(self._timed("evaluation", count(x))) for x in (True, False))
        tap = InputTap(inputs, *passes)
        self._handles.append(model.register_forward_pre_hook(tap, with_kwargs=True))
        after = self._slot(self._timed("the prediction", lambda v: on_prediction(v.detach())))
        last = PredictionTap(after)
        tap.fault = last.fault = self._fault
        self._handles.append(model.register_forward_hook(last))

    def _fault(self, error: Exception) -> None:
        self.faults.fault("a module boundary", error)

    def _slot(self, sink: Callable[[Tensor], None]) -> Tensor:
        slot = Slot(sink)
        self._slots.append(slot.number)
        return slot.tensor

    def _timed(self, what: str, sink: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
        return functools.partial(self.receive, what, sink)

    def receive(self, what: str, sink: Callable[[Tensor], None], value: Tensor) -> None:
        """Pass a tensor to a sink; its time is counted and its errors become gaps."""
        start = time.perf_counter()
        try:
            sink(value)
        except Exception as error:  # ours never reach the training
            self.faults.fault(what, error)
        self.seconds += time.perf_counter() - start

    def in_graph(self) -> bool:
        """Whether any tap was met inside compiled code."""
        return not IN_GRAPH.isdisjoint(self._slots)

    def take_asked(self) -> Tensor | None:
        """What the first evaluation since the last call was given, see `evaluation.asked`."""
        given, self._asked = self._asked, None
        return given

    def close(self) -> None:
        """Remove every hook and forget every slot; safe to call twice."""
        for handle in self._handles:
            handle.remove()
        for number in self._slots:
            close_slot(number)
        self._handles.clear()
        self._slots.clear()


class _Recorder:
    """Measures a tensor into one row of a ledger; there are up to three for each module."""

    __slots__ = ("axis", "flat", "hooks", "row", "scan")

    def __init__(
        self, hooks: Hooks, row: int, axis: int | None, flat: str | None, *, scan: bool = True
    ) -> None:
        self.hooks = hooks
        self.row = row
        self.axis = axis
        self.flat = flat
        self.scan = scan

    def __call__(self, value: Tensor) -> None:
        """Measure a tensor; its time is counted and errors become gaps."""
        self.hooks.receive("module statistics", self.record, value)

    def record(self, value: Tensor) -> None:
        """Measure a tensor, unless it is a recomputation of one already recorded."""
        ledger = self.hooks.ledger
        if self.row % 3 != 1 and recomputes(seen=ledger.calls[self.row] > 0):
            return
        if not value.is_floating_point() or not is_readable(value):
            ledger.met(self.row)
            ledger.blind.add(self.row)
        else:
            numbers = measure(value, self.axis, self.flat, scan=self.scan)
            ledger.add(self.row, value.device, *numbers)


def in_backward() -> bool:
    """Whether the autograd engine is running in this thread (checkpoint recomputes then)."""
    return bool(_current_graph_task_id() != -1)


def recomputes(*, seen: bool) -> bool:
    """Whether a checkpoint runs its forward pass for a second time, with gradient.

    The older, reentrant kind runs the first pass without gradient, so there the second
    one is the first that is looked at. The two are told apart by the hooks on saved
    tensors that the newer kind sets.

    Args:
        seen: Whether the module was looked at in this step before.
    """
    if not in_backward():
        return False
    read = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore: None)
    top = read(1)  # also while something is traced
    kind = "" if top is None else getattr(top[0], "__qualname__", "")
    if kind.startswith("_recomputation_hook"):
        return True
    # One checkpoint inside another: which of the two runs again is not visible.
    return seen and kind.startswith("_checkpoint_hook")
