"""Watching a script that was not written for us.

Interceptions are installed before the script runs. Models are put under watch as soon as
they can be known: when they are compiled, when an optimizer takes their parameters, and at
the latest when a backward pass reaches parameters that nobody owns yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import RunFact
from neuraldbg.torch.compile import unwrap
from neuraldbg.torch.discover import owners, variable_name
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.loop import Watch
from neuraldbg.torch.monitor import new_run, note_gaps, open_writer

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis

FIRST_BACKWARDS = 8  # backward passes whose reach is checked for unknown models


class ScriptWatch(Watch):
    """A watch that finds models and optimizers by itself."""

    _checked = 0

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Watch the models whose parameters an optimizer takes."""

        def meet() -> None:
            self.updates.know(optimizer)
            self.find([p for g in optimizer.param_groups for p in g["params"]])

        self._guard("a new optimizer", meet)

    def compiling(self, target: object) -> None:
        """Watch a model that is about to be compiled, before its first call."""
        if isinstance(target, nn.Module):
            self._guard("a compiled model", lambda: self._compiled(target))
        else:
            self.run = _compiled_run(self)

    def _compiled(self, model: nn.Module) -> None:
        self.run = _compiled_run(self)
        if next(iter(model.parameters()), None) is not None:
            self.add_root(model, self._prefix(model))

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """Watch models that a backward pass reaches and nobody knew."""
        if self._checked < FIRST_BACKWARDS:
            self._checked += 1
            self._guard("the reach of the loss", lambda: self._reach(tensors))
        super().backward_begins(tensors)

    def _reach(self, tensors: list[Tensor]) -> None:
        from neuraldbg.torch.loss import leaves

        reached = [p for t in tensors if t.grad_fn is not None for p in leaves(t.grad_fn)]
        known = {id(p) for p in self.owned.params().values()}
        unknown = [p for p in reached if id(p) not in known and isinstance(p, nn.Parameter)]
        if unknown:
            self.find(unknown)

    def find(self, params: list[Tensor]) -> None:
        """Watch the outermost models that own any of these parameters."""
        known = {id(p) for p in self.owned.params().values()}
        if all(id(p) in known for p in params):
            return
        for model in owners(params):
            self.add_root(model, self._prefix(model))

    def _prefix(self, model: nn.Module) -> str:
        """What to call a model if it turns out not to be the only one."""
        model = unwrap(model)
        return variable_name(model) or type(model).__name__


def _compiled_run(watch: Watch) -> RunFact:
    return replace(watch.run, compiled=True)


class Session:
    """A script under watch.

    Attributes:
        path: The run file.
    """

    def __init__(self, watch: ScriptWatch, faults: Faults) -> None:
        self._watch = watch
        self._faults = faults
        self.path: Path = watch.writer.path

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
        trained = watch.notes[m.N_BACKWARDS] > 0 or watch.notes[m.N_STEPS] > 0
        if trained:
            note_gaps(watch, self._faults)
        try:
            if not trained:
                return None
            watch.writer.flush()
            found = diagnose_file(self.path)
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
) -> Session:
    """Install the interceptions and open the run file.

    Args:
        out: Path of the run file, or None for a new one in the folder of runs.
        budget: Share of the run's time that watching may take.
        strict: Raise our own errors.
        command: The script and its arguments, as recorded.
        progress: Told about progress in a short line now and then.

    Raises:
        RunFileError: `out` cannot be written.
    """
    faults = Faults(strict=strict)
    run = new_run(command)
    writer = open_writer(run, out, faults)
    faults.on_gap = writer.gap
    for gap in faults.gaps:
        writer.gap(gap)
    watch = ScriptWatch(writer, faults, budget, run, only=False)
    if progress is not None:
        watch.on_step = lambda step, loss: progress(f"step {step}  loss {loss:.4g}")
    watch.open()
    return Session(watch, faults)
