"""`NeuralDbg`: watch one model's training, in a `with` block or between two calls."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim import Optimizer

from neuraldbg.config import Config
from neuraldbg.core import metrics as m
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Gap, RunFact
from neuraldbg.core.privacy import redact
from neuraldbg.errors import RunFileError, UsageError
from neuraldbg.store.locate import new_run_id, runs_dir
from neuraldbg.store.writer import RunWriter
from neuraldbg.torch.discover import optimizers_of
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.loop import Watch

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import CausalHypothesis, Coupling, Diagnosis, Link
    from neuraldbg.torch.display import Display

DEFAULT_BUDGET = 0.02


def new_run(command: list[str]) -> RunFact:
    """The facts of a run that begins now."""
    from neuraldbg import __version__

    now = datetime.datetime.now(datetime.UTC)
    name = next((Path(word).stem for word in command if word and word != "-m"), "session")
    return RunFact(
        id=new_run_id(name, now),
        command=tuple(redact(command)),
        cwd=str(Path.cwd()),
        started=now.isoformat(timespec="seconds"),
        neuraldbg=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        rank=int(os.environ.get("RANK", "0")),
    )


def open_writer(run: RunFact, out: Path | None, faults: Faults) -> RunWriter:
    """The run file: where it was asked for, else in the folder of runs.

    A folder that cannot be written is no reason to lose the run: unless the path was
    given, the file then goes to the system's temporary folder and a gap says so.

    Raises:
        RunFileError: The path that was asked for cannot be written.
    """

    def failed(error: Exception) -> None:
        faults.note("the rest of the run, because writing its file failed", error)

    from neuraldbg.core.engine import early_events

    if out is not None:
        return RunWriter(out, run, on_error=failed, before_thin=early_events)
    try:
        path = runs_dir() / f"{run.id}.ndbg"
        return RunWriter(path, run, on_error=failed, before_thin=early_events)
    except RunFileError as error:
        spare = Path(tempfile.gettempdir()) / f"{run.id}.ndbg"
        faults.gap("the folder of runs", f"{error}; the run is kept at {spare}")
        return RunWriter(spare, run, on_error=failed, before_thin=early_events)


class NeuralDbg:
    """Watches a model's training and explains why it fails.

    Use it as a context manager around the training loop, or call `attach()` and `close()`.
    The loop itself stays as it is.

    Args:
        model: The model; plain or compiled, before or after its first call.
        optimizer: Its optimizer; found by itself if left out.
        budget: Share of the run's time that watching may take on the whole.
            `float("inf")` looks at every step.
        strict: Raise the monitor's own errors instead of recording them as gaps.
        out: Path of the run file; by default a new file in `.neuraldbg/`.

    Raises:
        UsageError: `model` is no module, or the budget is negative.

    Example:
        >>> with NeuralDbg(model, optimizer) as dbg:  # doctest: +SKIP
        ...     train(model, optimizer)
        >>> print(dbg.diagnosis())  # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        budget: float = DEFAULT_BUDGET,
        strict: bool | None = None,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            msg = (
                f"NeuralDbg watches a torch.nn.Module, not a {type(model).__name__}. "
                "Pass the model that you train (compiled or not)."
            )
            raise UsageError(msg)
        if not budget >= 0:
            msg = f"budget is the share of time that watching may take, 0 or more, not {budget!r}."
            raise UsageError(msg)
        config = Config.from_env()
        # Held until it is attached; the watch holds it weakly.
        self._model: nn.Module | None = model
        self._optimizer = optimizer
        self._kind = type(model).__name__
        self._budget = budget
        self._out = Path(out) if out is not None else None
        self._faults = Faults(strict=config.strict if strict is None else strict)
        self._watch: Watch | None = None
        self._path: Path | None = None
        self._writer: RunWriter | None = None
        self._closed = False
        self._display: Display | None = None
        self._inert = config.off
        if config.off:
            self._faults.gap("everything", "NEURALDBG_MODE=off made the monitor inert")

    # -- life ------------------------------------------------------------------------

    def attach(self) -> NeuralDbg:
        """Start watching. If that fails for a reason of ours, training goes on unwatched.

        Raises:
            UsageError: It is already attached, or was attached and closed before.
            RunFileError: The run file that was asked for cannot be written.
        """
        if self._watch is not None:
            msg = (
                "This NeuralDbg is already in use (attached or closed). "
                "Make a new one for another stretch of training."
            )
            raise UsageError(msg)
        if self._inert:
            return self
        try:
            self._begin()
        except Exception as error:
            if self._out is not None and isinstance(error, RunFileError):
                raise
            self._inert = True
            self._abandon()
            self._faults.fault("the training", error)
        return self

    def _begin(self) -> None:
        run = new_run([Path(sys.argv[0]).name, *sys.argv[1:]])
        writer = open_writer(run, self._out, self._faults)
        self._writer, self._path = writer, writer.path
        self._faults.on_gap = writer.gap
        for gap in self._faults.gaps:
            writer.gap(gap)
        self._watch = Watch(writer, self._faults, self._budget, run, only=True)
        self._watch.open()
        self._install_hooks()

    def _abandon(self) -> None:
        """Take away what a failed start has left."""
        if self._watch is not None:
            with contextlib.suppress(Exception):
                self._watch.close("exception")
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()

    def _install_hooks(self) -> None:
        """Put taps on every module boundary; the watch owns the handles."""
        model, optimizer, watch = self._model, self._optimizer, self._watch
        if model is None or watch is None:
            return
        self._model = self._optimizer = None
        try:
            watch.add_model(model)
            for known in (
                [optimizer] if optimizer is not None else optimizers_of(model.parameters())
            ):
                watch.updates.know(known)
        except Exception as error:  # a model we cannot tap still trains
            self._faults.fault("the module boundaries", error)
        params = list(model.parameters())
        if not params:
            self._faults.gap("parameters", "the model has none, so there is nothing to train")
        if any(p.is_meta for p in params):
            self._faults.gap("values", "the model is on the meta device, which holds none")

    def close(self, finished: str = "ok") -> None:
        """Stop watching, remove every hook and complete the run file; safe to call twice."""
        if self._watch is None or self._writer is None or self._closed:
            return
        self._closed = True
        try:
            _finish(self._watch, self._writer, self._faults, finished)
        except Exception as error:
            self._faults.fault("the end of the run", error)
        if self._display is not None:
            self._display.end()

    def __enter__(self) -> NeuralDbg:
        return self.attach()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif self._watch is not None:
            self._watch.notes[m.N_EXCEPTION] = f"{kind.__name__}: {error}"
            interrupted = issubclass(kind, (KeyboardInterrupt, SystemExit))
            self.close("interrupted" if interrupted else "exception")

    # -- what is known ------------------------------------------------------------------

    @property
    def path(self) -> Path | None:
        """The run file, once attached."""
        return self._path

    @property
    def step(self) -> int:
        """The current step. Counted by itself; set it to number the steps yourself."""
        return 0 if self._watch is None else self._watch.step

    @step.setter
    def step(self, value: int) -> None:
        if self._watch is not None:
            self._watch.step = int(value)

    @property
    def gaps(self) -> list[Gap]:
        """What could not be observed so far."""
        return list(self._faults.gaps)

    @property
    def events(self) -> tuple[SemanticEvent, ...]:
        """The semantic events so far, in order of step."""
        return self.diagnosis().events

    def diagnosis(self) -> Diagnosis:
        """What is wrong, as far as it can be told now. Works during training.

        Raises:
            UsageError: Nothing was ever attached.
        """
        from neuraldbg.run import diagnose_file

        if self._inert:
            return self._nothing()
        if self._writer is None or self._path is None:
            msg = "Nothing was watched yet: enter the `with` block or call attach() first."
            raise UsageError(msg)
        try:
            self._writer.flush()
            return diagnose_file(self._path, self._faults.gaps)
        except Exception as error:  # asked for in the middle of a training
            self._faults.fault("the diagnosis", error)
            return self._nothing()

    def _nothing(self) -> Diagnosis:
        """The diagnosis of a run that nothing is known about, but for why."""
        from neuraldbg.core.diagnosis import Diagnosis
        from neuraldbg.core.facts import Facts

        gaps = tuple(self.gaps)
        headline = f"nothing can be said: {gaps[-1].why}"
        return Diagnosis(
            Facts(RunFact(id="none"), gaps=gaps), "healthy", gaps=gaps, headline=headline
        )

    def explain_failure(self, symptom: str | None = None) -> str:
        """The diagnosis as text; with a symptom, only the hypotheses that explain it.

        Args:
            symptom: A word to look for in cause, summary and chain, e.g. `vanishing`.
        """
        from dataclasses import replace

        found = self.diagnosis()
        if symptom is not None:
            kept = tuple(h for h in found.hypotheses if _mentions(h, symptom))
            found = replace(found, hypotheses=kept)
        return str(found)

    def get_causal_hypotheses(self) -> list[CausalHypothesis]:
        """The ranked hypotheses, the best first."""
        return list(self.diagnosis().hypotheses)

    def trace_causal_chain(self, event: SemanticEvent | str) -> list[Link]:
        """The way from a root cause to an event, the root first."""
        from neuraldbg.core.graph import trace

        return trace(self.diagnosis(), event if isinstance(event, str) else event.id)

    def detect_coupled_failures(self) -> list[Coupling]:
        """Pairs of events joined by a mechanism, the best agreement first."""
        return list(self.diagnosis().couplings)

    def export_mermaid_causal_graph(self) -> str:
        """The causal graph as a Mermaid flowchart."""
        from neuraldbg.report.mermaid import render

        return render(self.diagnosis())

    def __repr__(self) -> str:
        state = "off" if self._inert else "idle" if self._watch is None else f"step {self.step}"
        return f"NeuralDbg({self._kind}, {state})"

    def _repr_html_(self) -> str:
        if self._path is None and not self._inert:
            from neuraldbg.report.notebook import sentence

            return sentence(f"{self!r}: attach it to see the run here")
        return self.diagnosis()._repr_html_()

    def _ipython_display_(self) -> None:
        """Show the run in a notebook; as long as it trains, the display follows it."""
        from IPython.display import HTML, display

        from neuraldbg.torch.display import Display, in_notebook

        if not in_notebook():
            print(repr(self))  # noqa: T201 - what IPython does with an object on a terminal
        elif self._path is None or self._closed:
            display(HTML(self._repr_html_()))
        else:
            if self._display is not None:
                self._display.end()
            self._display = Display(self._path, self._undisplayed)

    def _undisplayed(self, error: Exception) -> None:
        self._faults.gap("the display in the notebook", f"{type(error).__name__}: {error}")


def _mentions(hypothesis: CausalHypothesis, word: str) -> bool:
    texts = [hypothesis.cause, hypothesis.summary, *(link.text for link in hypothesis.chain)]
    wanted = word.lower().replace("_", " ")
    return any(wanted in text.lower().replace("_", " ") for text in texts)


def _finish(watch: Watch, writer: RunWriter, faults: Faults, finished: str) -> None:
    try:
        watch.close(finished)
        note_gaps(watch, faults)
    finally:
        writer.close()
    if writer.error is not None and faults.strict:
        raise writer.error


def note_gaps(watch: Watch, faults: Faults) -> None:
    """Say what a finished watch never saw."""
    roots = watch.models.roots
    if roots and not any(root.hooks.ledger.order for root in roots):
        faults.gap("the forward pass", "the model was never called in training while watched")
        return
    for root in (root for root in roots if root.used()):
        ledger, rows = root.hooks.ledger, root.hooks.rows
        quiet = [root.full_name(n) for n, r in rows.items() if r.output not in ledger.order]
        if quiet:
            faults.gap(_modules(quiet), "never called in a watched training step")
        blind = [root.full_name(n) for n, r in rows.items() if r.output in ledger.blind]
        if blind:
            faults.gap(_modules(blind), "the output has no real numbers to look at")
        lost = [root.full_name(n) for n in root.without_gradient()]
        if lost:
            why = "no gradient came back to the output, as to a view that is changed in place"
            faults.gap(_modules(lost), why)


def _modules(names: list[str]) -> str:
    listed = ", ".join(name or "the model itself" for name in names[:4])
    return f"modules {listed}" + (f" and {len(names) - 4} more" if len(names) > 4 else "")
