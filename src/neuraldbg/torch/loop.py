"""The training loop as the monitor follows it: steps, due steps, and what each brings."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind, Overhead, RunFact, Scalar
from neuraldbg.torch import boundaries, facts
from neuraldbg.torch.compile import is_compiled, rearm, unwrap
from neuraldbg.torch.hooks import in_backward
from neuraldbg.torch.loss import leaves
from neuraldbg.torch.ownership import Ownership
from neuraldbg.torch.roots import Root
from neuraldbg.torch.schedule import Schedule
from neuraldbg.torch.seen import LossSide
from neuraldbg.torch.streams import Stream
from neuraldbg.torch.taps import SWITCH
from neuraldbg.torch.updates import ParamSide, held

if TYPE_CHECKING:
    from neuraldbg.store.writer import RunWriter
    from neuraldbg.torch.guard import Faults

# Backward passes without an optimizer step after which each counts as a step of its own:
# longer accumulation exists, but then only the counting is finer than the user's.
PATIENCE: Final = 16
FACT_STEPS: Final = frozenset({0, 1, 2, 5, 10, 50, 100})  # when static facts are written again
FACT_LOOKS: Final = 64  # and once in so many looks
FLAG_LOOKS: Final = 10  # training flags are read at the first looks and then once in so many

WATCHES: Final[list[Watch]] = []


class Watch(boundaries.Listener):
    """Follows one training loop and writes what it sees.

    Args:
        writer: The run file.
        faults: Receives our own errors.
        budget: Share of the run's time that watching may take.
        run: What is known of the run at the start.
        only: Whether to ignore losses and optimizers of models that are not watched.

    Attributes:
        step: The current step.
        due: Whether this step is looked at.
        seconds: Our own time so far.
        notes: Facts to be kept with the run.
        on_step: Told the step and its loss after each step.
    """

    def __init__(
        self, writer: RunWriter, faults: Faults, budget: float, run: RunFact, *, only: bool
    ) -> None:
        self.writer = writer
        self.faults = faults
        self.run = run
        self.step = 0
        self.due = True
        self.seconds = 0.0
        self.notes: dict[str, Scalar] = {m.N_BACKWARDS: 0, m.N_STEPS: 0}
        self.on_step: Callable[[int, float], None] | None = None
        self.roots: list[Root] = []
        self.schedule = Schedule(budget)
        self._only = only
        self._steps = Stream(writer, m.STEP)
        self._looks = Stream(writer, m.LOOK)
        self.owned = Ownership(self.roots)
        self.losses = LossSide(self._steps, self._looks, writer.event, self.owned.meet)
        self.updates = ParamSide(self._steps, self._looks, self.owned.params)
        self._schedulers: list[weakref.ref[Any]] = []
        self._started = self._step_start = time.perf_counter()
        self._ours = 0.0
        self._backwards = 0
        self._since_step = 0

    # -- life ------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to listen."""
        WATCHES.append(self)
        boundaries.listen(self)
        _set_switch()

    def close(self, finished: str) -> None:
        """Stop listening, remove every hook, and write down the run's end."""
        if self not in WATCHES:
            return
        WATCHES.remove(self)
        boundaries.ignore(self)
        self._guard("the last step", self._last_boundary)
        for root in self.roots:
            root.close()
        self._guard("static facts", self._write_facts)
        self._guard("the run's end", lambda: self._write_run(finished))
        _set_switch()

    def _last_boundary(self) -> None:
        seen = any(any(root.hooks.ledger.calls) for root in self.roots)
        if self._backwards or (self.due and seen):
            self._boundary()

    def _guard(self, what: str, fn: Callable[[], None]) -> None:
        """Run a piece of ours: time it, and let no exception out."""
        start = time.perf_counter()
        try:
            fn()
        except Exception as error:  # noqa: BLE001 - ours never reach the training
            self.faults.fault(what, error)
        spent = time.perf_counter() - start
        self.seconds += spent
        self._ours += spent

    def add_root(self, model: nn.Module, prefix: str = "") -> None:
        """Put a model under watch; one that is already watched is left alone."""
        compiled = is_compiled(model)
        model = unwrap(model)
        for known in self.roots:
            watched = known.ref()
            if watched is not None and any(x is model for x in watched.modules()):
                known.compiled |= compiled
                return
        root = Root(model, prefix, self.faults, self._input, self._predicted)
        root.compiled = compiled or is_compiled(model)
        rearm(model)
        self.roots.append(root)

    # -- what the boundaries tell ------------------------------------------------------

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """A backward pass is about to start."""
        self._guard("the loss", lambda: self._backward(tensors))

    def step_begins(self, optimizer: Optimizer) -> None:
        """An optimizer is about to update."""
        self._guard("the optimizer step", lambda: self._before_step(optimizer))

    def step_ended(self, optimizer: Optimizer) -> None:
        """An optimizer has updated."""
        self._guard("the optimizer step", lambda: self._after_step(optimizer))

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        """Gradients are being clipped."""
        self._guard("gradient clipping", lambda: self._clip(params, limit, norm))

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        """A loss scaler is at work."""
        self.notes[m.N_SCALER] = True
        self.losses.scaled(scaler, loss, result)

    def scheduler_made(self, scheduler: Any) -> None:  # noqa: ANN401
        """A learning rate scheduler was made."""
        self._schedulers.append(weakref.ref(scheduler))
        self.notes[m.N_SCHEDULER] = type(scheduler).__name__

    def _input(self, position: int, value: Tensor) -> None:
        if self.due:
            self.losses.batch("input" if position == 0 else f"input.{position}", value)

    def _predicted(self, value: Tensor) -> None:
        if self.due:
            self.losses.predicted(value)

    def _backward(self, tensors: list[Tensor]) -> None:
        loss = next((t for t in tensors if isinstance(t, Tensor)), None)
        # A reentrant checkpoint runs a backward pass of its own inside the user's.
        if loss is None or in_backward() or (self._only and not self._concerns(loss)):
            return
        if self._backwards and (not self.updates.any or self._since_step > PATIENCE):
            self._boundary()
        self.notes[m.N_BACKWARDS] = int(self.notes[m.N_BACKWARDS] or 0) + 1
        self._backwards += 1
        self._since_step += 1
        self.losses.waiting.append(self.losses.value(loss))
        if self.due:
            self.updates.backward_begins()
            self.losses.read(loss, self.step)
            self._note_autocast()

    def _note_autocast(self) -> None:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                kind = torch.get_autocast_dtype(device)
                self.notes[m.N_AUTOCAST] = str(kind).removeprefix("torch.")

    def _concerns(self, loss: Tensor) -> bool:
        if not self.due or loss.grad_fn is None:
            return True
        own = {id(p) for p in self.owned.params().values()}
        reached = leaves(loss.grad_fn)
        return not reached or any(id(p) in own for p in reached)

    def _index(self, optimizer: Optimizer) -> int | None:
        if self._only and not self.updates.known(optimizer):
            own = {id(p) for p in self.owned.params().values()}
            if not any(id(p) in own for p in held(optimizer)):
                return None
        return self.updates.index(optimizer)

    def _before_step(self, optimizer: Optimizer) -> None:
        index = self._index(optimizer)
        if index is None:
            return
        self._since_step = 0
        self._settle(index)
        self._name_roots()
        self.updates.before_step(index, optimizer, due=self.due)
        if self.due and (self.schedule.looks < 3 or self.schedule.looks % FLAG_LOOKS == 0):
            self.owned.note_flags()

    def _settle(self, index: int) -> None:
        value = self.losses.settle(index)
        if value is None or index:
            return
        if self.losses.suspicious(value):
            self.schedule.trigger()
        if self.on_step is not None:
            self.on_step(self.step, value)

    def _after_step(self, optimizer: Optimizer) -> None:
        index = self._index(optimizer)
        if index is None:
            return
        self.updates.after_step(index)
        self.notes[m.N_STEPS] = int(self.notes[m.N_STEPS] or 0) + 1
        if self.updates.leads(index):
            self._boundary()

    def _clip(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        scaler = None if self.losses.scaler is None else self.losses.scaler()
        if scaler is not None and self.updates.still_scaled(params, scaler):
            count = int(self.notes.get(m.N_CLIP_BEFORE_UNSCALE) or 0)
            self.notes[m.N_CLIP_BEFORE_UNSCALE] = count + 1
        self.updates.clipped(params, limit, norm, due=self.due)

    # -- between steps -------------------------------------------------------------------

    def _boundary(self) -> None:
        """One step is over: write it down and decide about the next."""
        now = time.perf_counter()
        self._settle(0)
        ours, self._ours = self._ours + self._tap_seconds(), 0.0
        theirs = max(now - self._step_start - ours, 0.0)
        self._steps.put(Channel(Kind.RUN, "", m.R_SECONDS), theirs)
        self._steps.put(Channel(Kind.RUN, "", m.R_BACKWARDS), float(self._backwards))
        self._note_schedulers()
        if self.due:
            self._finish_look()
            self.schedule.looked(self.step, ours + time.perf_counter() - now)
        self._steps.emit(self.step)
        self.schedule.earned(theirs)
        if self.step in FACT_STEPS or (self.due and self.schedule.looks % FACT_LOOKS == 0):
            self._write_facts()
        self._next_step()

    def _tap_seconds(self) -> float:
        spent = 0.0
        for root in self.roots:
            spent += root.hooks.seconds
            root.hooks.seconds = 0.0
        self.seconds += spent
        return spent

    def _note_schedulers(self) -> None:
        for i, ref in enumerate(self._schedulers):
            scheduler = ref()
            if scheduler is not None:
                channel = Channel(Kind.OPTIMIZER, f"scheduler.{i}", m.O_SCHEDULED)
                self._steps.put(channel, float(scheduler.last_epoch))

    def _finish_look(self) -> None:
        scale = self.losses.scale()
        if scale is not None:
            self._looks.put(Channel(Kind.OPTIMIZER, "0", m.O_SCALE), scale)
        self._name_roots()
        for root in self.roots:
            root.drain(self._looks, scale or 1.0)
        self.updates.end_look(bare=not self.updates.any)
        self._looks.emit(self.step)

    def _name_roots(self) -> None:
        """Give used models their names: a prefix only where there are several."""
        used = [root for root in self.roots if root.used()]
        for root in used:
            root.settle_name(alone=len(used) == 1)

    def _next_step(self) -> None:
        self.step += 1
        self._backwards = 0
        self._step_start = time.perf_counter()
        due = self.schedule.due(self.step)
        if due and not self.due:
            for root in self.roots:
                root.discard()
        self.due = due
        _set_switch()

    # -- facts ---------------------------------------------------------------------------

    def _write_facts(self) -> None:
        self.owned.write(self.writer, self.updates)
        self.writer.losses(list(self.losses.facts.values()))
        self._write_run(None)

    def _write_run(self, finished: str | None) -> None:
        for root in self.roots:
            counts = root.hooks.evaluations
            self.notes[m.N_EVAL_TRAIN_MODE] = counts[True]
            self.notes[m.N_EVAL_FORWARDS] = counts[True] + counts[False]
        self.run = replace(
            self.run,
            steps=self.step,
            finished=finished or self.run.finished,
            compiled=any(r.compiled for r in self.roots) or self.run.compiled,
            device=facts.device_of(self.owned.params().values()),
            notes=dict(self.notes),
        )
        self.writer.run(self.run)
        theirs = time.perf_counter() - self._started - self.seconds
        self.writer.overhead(Overhead(self.seconds / max(theirs, 1e-9), self.seconds))


def _set_switch() -> None:
    SWITCH.on = any(watch.due for watch in WATCHES)
