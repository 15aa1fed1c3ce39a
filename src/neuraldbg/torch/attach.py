"""Watching a script that was not written for us.

Interceptions are installed before the script runs. Models are put under watch as soon as
they can be known: when they are compiled, when an optimizer takes their parameters, and at
the latest when a backward pass reaches parameters that nobody owns yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.core import metrics as m
from neuraldbg.experiments.environment import recorded
from neuraldbg.torch.discover import owners
from neuraldbg.torch.divergence import draw_as_eager, note_distances
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.loop import Watch
from neuraldbg.torch.loss import leaves
from neuraldbg.torch.monitor import new_run, note_gaps, open_writer
from neuraldbg.torch.succession import held

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis

FIRST_BACKWARDS: Final = 8  # backward passes whose reach is checked for unknown models


class ScriptWatch(Watch):
    """A watch that finds models and optimizers by itself."""

    _checked = 0
    _parts = False  # whether models were met that may be parts of others

    def _meet_optimizer(self, optimizer: Optimizer) -> None:
        super()._meet_optimizer(optimizer)
        self.find(held(optimizer))

    def _compiling(self, target: object, backend: str | None) -> None:
        if isinstance(target, nn.Module) and next(target.parameters(), None) is not None:
            self.add_model(target)
            self._parts = True
        # What a compiled function calls cannot be told: any model may be meant.
        self.run = replace(self.run, compiled=True, backend=backend or self.run.backend)
        super()._compiling(target, backend)

    def _backward(self, tensors: list[Tensor]) -> None:
        if self._checked < FIRST_BACKWARDS:
            self._checked += 1
            self._reach(tensors)
        super()._backward(tensors)

    def _reach(self, tensors: list[Tensor]) -> None:
        """Watch models that a backward pass reaches and nobody knew."""
        reached = [p for t in tensors if t.grad_fn is not None for p in leaves(t.grad_fn)]
        self.find([p for p in reached if isinstance(p, nn.Parameter)])

    def find(self, params: list[Tensor]) -> None:
        """Watch the outermost models that own any of these parameters."""
        parts, self._parts = self._parts, False
        known = set() if parts else {id(p) for p in self.owned.params().values()}
        wanted = [p for p in params if id(p) not in known and self.owned.hidden_name(p) is None]
        for model in owners(wanted) if wanted else ():
            self.add_model(model)


class Session:
    """A script under watch.

    Attributes:
        path: The run file.
    """

    def __init__(self, watch: ScriptWatch, faults: Faults, eager: Path | None = None) -> None:
        self._watch = watch
        self._eager = eager
        self._faults = faults
        self.path: Path = watch.writer.path

    def gap(self, what: str, why: str) -> None:
        """Note something that could not be done."""
        self._faults.gap(what, why)

    def each_step(self, act: Callable[[int, float], None]) -> None:
        """Have `act` called with each step and its loss."""
        self._watch.on_step = act

    def look_from(self, step: int) -> None:
        """Look at each step from this one on, whatever the budget."""
        self._watch.dense_from = step

    def finish(self, finished: str, exception: BaseException | None) -> Diagnosis | None:
        """Stop watching, complete the run file, and diagnose it.

        Args:
            finished: `ok`, `exception` or `interrupted`.
            exception: What ended the script, if anything did.

        Returns:
            The diagnosis, or None if no training was seen; the empty file is then removed.
        """
        from neuraldbg.run import diagnose_file

        watch = self._watch
        if exception is not None:
            watch.notes[m.N_EXCEPTION] = f"{type(exception).__name__}: {exception}"[:500]
        watch.close(finished)
        trained = bool(watch.notes[m.N_BACKWARDS] or watch.notes[m.N_STEPS])
        if trained:
            note_gaps(watch, self._faults)
            if self._eager is not None:
                note_distances(watch.writer, self._eager, self._faults)
        # A script may crash before its first backward pass, and the exception say why.
        crashed = isinstance(exception, Exception) and bool(watch.models.roots)
        try:
            if not trained and not crashed:
                return None
            watch.writer.flush()
            found = diagnose_file(self.path, self._faults.gaps)
            trained = trained or bool(found.hypotheses)
            if not trained:
                return None
            watch.writer.diagnosis(found.to_json())
            return found
        finally:
            watch.writer.close()
            if not trained:
                self.path.unlink(missing_ok=True)


def start(
    out: Path | None,
    budget: float,
    strict: bool,  # noqa: FBT001 - the interface of the command line
    command: list[str],
    progress: Callable[[str], None] | None = None,
    seed: int | None = None,
    eager: Path | None = None,
) -> Session:
    """Install the interceptions and open the run file.

    Args:
        out: Path of the run file, or None for a new one in the folder of runs.
        budget: Share of the run's time that watching may take.
        strict: Raise our own errors.
        command: The script and its arguments, as recorded.
        progress: Told about progress in a short line now and then.
        seed: Seed of torch's random numbers, or None to leave them alone.
        eager: Run file of the same script without compilation, to compare with.

    Raises:
        RunFileError: `out` cannot be written.
    """
    if seed is not None:
        torch.manual_seed(seed)
    if eager is not None:
        draw_as_eager()
    faults = Faults(strict=strict)
    run = new_run(command)
    writer = open_writer(run, out, faults)
    faults.on_gap = writer.gap
    for gap in faults.gaps:
        writer.gap(gap)
    watch = ScriptWatch(writer, faults, budget, run, only=False)
    watch.notes |= {m.N_ENVIRONMENT + name: value for name, value in recorded().items()}
    if progress is not None:
        watch.on_step = lambda step, loss: progress(f"step {step}  loss {loss:.4g}")
    watch.open()
    return Session(watch, faults, eager)
