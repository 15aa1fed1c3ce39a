"""The training loop as the monitor follows it: steps, due steps, and what each brings."""

from __future__ import annotations

import importlib
import math
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind, Overhead, RunFact, Scalar
from neuraldbg.torch import boundaries, facts, versions
from neuraldbg.torch.caching import mark_cacheable
from neuraldbg.torch.compile import backend_of
from neuraldbg.torch.concern import Concern
from neuraldbg.torch.evaluation import EvaluationSide
from neuraldbg.torch.hearing import Hearing
from neuraldbg.torch.hooks import in_backward
from neuraldbg.torch.models import Models
from neuraldbg.torch.ownership import Ownership
from neuraldbg.torch.schedule import Schedule
from neuraldbg.torch.seen import LossSide
from neuraldbg.torch.streams import Stream
from neuraldbg.torch.succession import held
from neuraldbg.torch.taps import SWITCH
from neuraldbg.torch.updates import ParamSide

if TYPE_CHECKING:
    from neuraldbg.store.writer import RunWriter
    from neuraldbg.torch.guard import Faults

# Backward passes without an optimizer step after which each counts as a step of its own:
# longer accumulation exists, but then only the counting is finer than the user's.
PATIENCE: Final = 16
FACT_STEPS: Final = frozenset({0, 1, 2, 5, 10, 50, 100})  # when static facts are written again
FACT_LOOKS: Final = 64  # and once in so many looks

WATCHES: Final[list[Watch]] = []


class Watch(Hearing):
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
        models: The watched models.
        notes: Facts to be kept with the run.
        on_step: Told the step and its loss after each step.
        dense_from: The step from which on each is looked at, whatever the budget.
    """

    def __init__(
        self, writer: RunWriter, faults: Faults, budget: float, run: RunFact, *, only: bool
    ) -> None:
        super().__init__(faults)
        self.writer = writer
        self.run = run
        self.due = True
        self.notes: dict[str, Scalar] = {m.N_BACKWARDS: 0, m.N_STEPS: 0}
        self.on_step: Callable[[int, float], None] | None = None
        self.dense_from: float = math.inf
        self.models = Models(faults, self._input, self._predicted)
        self.schedule = Schedule(budget)
        self._steps = Stream(writer, m.STEP)
        self._looks = Stream(writer, m.LOOK)
        self.owned = Ownership(self.models.roots, orphans=not only)
        self._concern = Concern(self.owned.params, only=only)
        self.evaluations = EvaluationSide(self._steps)
        self.losses = LossSide(self._steps, self._looks, writer.event, self.owned.meet)
        self.updates = ParamSide(self._steps, self._looks, self.owned.params)
        self._updating = False  # whether an optimizer's step is under way
        self._started = time.perf_counter()
        self._backwards = 0
        self._since_step = 0

    # -- life ------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to listen."""
        versions.note_untested(self.faults)
        WATCHES.append(self)
        boundaries.listen(self)
        _set_switch()

    def close(self, finished: str) -> None:
        """Stop listening, remove every hook, and write down the run's end."""
        if self not in WATCHES:
            return
        WATCHES.remove(self)
        boundaries.ignore(self)
        try:
            self._guard("the last step", self._last_boundary)
        finally:
            self.models.close()
            _set_switch()
        self._guard("static facts", lambda: self._settle_names(last=True))
        self._guard("static facts", self._write_facts)
        self._guard("the run's end", lambda: self._write_run(finished))

    def _last_boundary(self) -> None:
        if self._rest.left:
            self._wake()
        seen = any(any(root.hooks.ledger.calls) for root in self.models.roots)
        if self._backwards or (self.due and seen):
            self._boundary()
        self.evaluations.settle(self.models.take_asked())
        self._steps.emit(self.step)
        self._late(wait=True)

    def add_model(self, model: nn.Module) -> None:
        """Put a model under watch; one that is already watched is left alone."""
        self.models.add(model)
        self.run = replace(self.run, backend=backend_of(model) or self.run.backend)

    # -- what the boundaries tell ------------------------------------------------------

    def scheduler_made(self, scheduler: Any) -> None:  # noqa: ANN401
        """A learning rate scheduler was made."""
        self.updates.schedulers.append(weakref.ref(scheduler))
        self.notes[m.N_SCHEDULER] = type(scheduler).__name__

    def _is_ours(self, optimizer: Optimizer) -> bool:
        return self.updates.known(optimizer)

    def _evaluated(self, loss: Tensor) -> None:
        self.evaluations.add(loss)

    def _input(self, position: int, value: Tensor) -> None:
        if self.due:
            self.notes |= facts.autocast()
            self.losses.batch("input" if position == 0 else f"input.{position}", value)

    def _predicted(self, value: Tensor) -> None:
        if self.due:
            self.notes |= facts.autocast()
            self.losses.predicted(value)

    def _scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        if scaler.is_enabled():
            self.notes[m.N_SCALER] = True
            self.losses.scaled(scaler, loss, result)

    def _backward(self, tensors: list[Tensor]) -> None:
        # A reentrant checkpoint runs a backward pass of its own inside the user's.
        if not tensors or in_backward():
            return
        self._passing = self._concern.loss(tensors[0], due=self.due)
        if not self._passing:
            return
        self._count(1)
        self.losses.note(tensors[0])
        self.losses.look_out(tensors[0], self.step, due=self.due)
        if self.due:
            self._settle_names()
            self.updates.backward_begins()
            self.losses.read(tensors[0])
            # Here, and not at the optimizer's step, which may never come.
            self.owned.note_flags(self.schedule.looks)
            self.notes |= facts.autocast()

    def _differentiates(self, tensors: list[Tensor]) -> None:
        if tensors and not in_backward() and self._concern.loss(tensors[0], due=self.due):
            self.losses.set_aside(tensors[0], due=self.due)

    def _count(self, backwards: int) -> None:
        self._add(m.N_BACKWARDS, backwards)
        self._backwards += backwards
        self._since_step += backwards

    def _add(self, note: str, number: int) -> None:
        self.notes[note] = int(self.notes.get(note) or 0) + number

    def _after_backward(self) -> None:
        self._passing = False
        if self._concern.was_foreign() and self.losses.forget():
            self._count(-1)
            return
        patient = self.updates.any and self._since_step <= PATIENCE
        if not (patient or self._updating):
            self._boundary()

    def _compiling(self, target: object, backend: str | None) -> None:
        importlib.import_module("torch._dynamo")  # so that there are settings to set
        _set_switch()
        if self.models.compiling(target):
            self.run = replace(self.run, backend=backend or self.run.backend)

    def _meet_optimizer(self, optimizer: Optimizer) -> None:
        if self._rest.left:
            self._wake()
        if self._concern.optimizer(optimizer):
            self.updates.know(optimizer)
            if self.step and self.schedule.anew():
                self.losses.anew()

    def _index(self, optimizer: Optimizer) -> int | None:
        known = self.updates.known(optimizer)
        if not known and not self._concern.optimizer(optimizer, due=self.due):
            return None
        return self.updates.index(optimizer)

    def _before_step(self, optimizer: Optimizer) -> None:
        index = self._index(optimizer)
        if index is None:
            return
        self._since_step = 0
        self._settle(index)
        self._settle_names()
        if self.updates.fresh:
            self.owned.adopt(index, held(optimizer))
        self.updates.before_step(index, optimizer, due=self.due)
        self._updating = True

    def _settle(self, index: int, *, closure: bool = False) -> None:
        value = self.losses.settle(index, self.step, closure=closure)
        if value is not None and index == 0:
            self._judge(self.step, value)

    def _judge(self, step: int, loss: float) -> None:
        if self.losses.suspicious(loss):
            self.schedule.trigger()
        if self.on_step is not None:
            self.on_step(step, loss)

    def _after_step(self, optimizer: Optimizer) -> None:
        index = self._index(optimizer)
        if index is None:
            return
        self._updating = False
        closure = bool(self.losses.waiting)
        try:
            self._settle(index, closure=closure)
            self.updates.after_step(index, closure=closure)
        finally:
            self._add(m.N_STEPS, 1)
            if self.updates.ends_step(index):
                self._boundary()

    def _before_attempt(self, optimizer: Optimizer) -> None:
        self.updates.attempt(self._index(optimizer))

    def _after_attempt(self) -> None:
        """Count a step that a loss scaler skipped as one of the user's steps."""
        index = self.updates.skipped()
        if index is None:
            return
        self._since_step = 0
        self._settle(index)
        if self.updates.ends_step(index):
            self._boundary()

    def _clip(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        scaler = self.losses.scaler
        if scaler is not None and self.updates.still_scaled(params, scaler):
            self._add(m.N_CLIP_BEFORE_UNSCALE, 1)
        self.updates.clipped(params, limit, norm, due=self.due)

    # -- between steps -------------------------------------------------------------------

    def _boundary(self) -> None:
        """One step is over: write it down and decide about the next."""
        now = time.perf_counter()
        taps = self.models.take_seconds()
        self.seconds += taps
        ours = self._ours + taps + now - max(self._entered, self._step_start)
        theirs = max(now - self._step_start - ours, 0.0)
        try:
            self._write_step(theirs)
        finally:
            # Also after a fault of ours: a step must not last for ever.
            spent = ours + time.perf_counter() - now
            if self.due:
                self.schedule.looked(spent, theirs)
            self.schedule.passed(theirs, 0.0 if self.due else spent)
            self._next_step()

    def _write_step(self, theirs: float) -> None:
        try:
            self._settle(0)
            self._steps.put(Channel(Kind.RUN, "", m.R_SECONDS), theirs)
            self._steps.put(Channel(Kind.RUN, "", m.R_BACKWARDS), float(self._backwards))
            self.updates.note_schedulers()
            self.evaluations.settle(self.models.take_asked())
            if self.due:
                self._finish_look()
        finally:
            self._looks.emit(self.step)
            self._steps.emit(self.step)
        self._late(wait=False)
        again = self.due and (self.schedule.looks % FACT_LOOKS == 0 or self.owned.unwritten)
        if again or self.step in FACT_STEPS or self.updates.fresh:
            self.updates.fresh = False
            self._write_facts()

    def _late(self, *, wait: bool) -> None:
        """Take in losses that have arrived from a device since."""
        for step, channel, value in self.losses.arrived(wait=wait):
            self._steps.add(step, channel, value)
            if channel.name == "loss":
                self._judge(step, value)

    def _finish_look(self) -> None:
        scale = self.losses.scale()
        if scale is not None:
            self._looks.put(Channel(Kind.OPTIMIZER, "0", m.O_SCALE), scale)
        self._settle_names()
        for root in self.models.roots:
            root.drain(self._looks, scale or 1.0)
        self.updates.end_look(bare=not self.updates.any)

    def _settle_names(self, *, last: bool = False) -> None:
        holds = self.updates.holds
        self.models.settle_names(lambda root: holds(root.parameters().values()), last=last)

    def _wake(self) -> None:
        """Make up for the steps that were let pass."""
        count, self._rest.left = self._rest.passed, 0
        self._add(m.N_STEPS, count)
        self._add(m.N_BACKWARDS, count * self._rest.backwards)
        self.updates.rested(count)
        self.schedule.rested(time.perf_counter() - self._step_start, count)
        self._step_start = time.perf_counter()

    def _next_step(self) -> None:
        self.step += 1
        made, self._backwards = self._backwards, 0
        self._ours = 0.0
        self._step_start = time.perf_counter()
        due = self.schedule.next_step() or self.step >= self.dense_from
        if due and not self.due:
            self.models.discard()
        self.due = due
        _set_switch()
        if not due and self.updates.alone and self.losses.scaler is None:
            # The step after a rest is followed, and not looked at.
            rest = min(self.schedule.rest(), self.dense_from - self.step - 1)
            self._rest.begin(int(rest), made)

    def _write_facts(self) -> None:
        self.owned.write(self.writer, self.updates)
        self.writer.losses(list(self.losses.facts.values()))
        self._write_run(None)

    def _write_run(self, finished: str | None) -> None:
        self.notes |= self.models.evaluations()
        if self.updates.renewed:
            self.notes[m.N_RENEWED] = self.updates.renewed
        self.run = replace(
            self.run,
            steps=self.step,
            finished=finished or self.run.finished,
            compiled=any(r.compiled for r in self.models.roots) or self.run.compiled,
            device=facts.device_of(self.owned.params().values()),
            notes=dict(self.notes),
        )
        self.writer.run(self.run)
        theirs = time.perf_counter() - self._started - self.seconds
        self.writer.overhead(Overhead(self.seconds / max(theirs, 1e-9), self.seconds))


def _set_switch() -> None:
    SWITCH.on = any(watch.due for watch in WATCHES)
    mark_cacheable(SWITCH.on)
