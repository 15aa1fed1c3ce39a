"""Running trials one after the other, each in a process of its own, within a budget."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import RunFact
from neuraldbg.core.record import Record
from neuraldbg.errors import RunFileError, UsageError
from neuraldbg.experiments import environment, outcome, scratch
from neuraldbg.experiments.interventions import Intervention
from neuraldbg.experiments.outcome import Outcome, Scope
from neuraldbg.experiments.spec import Spec, Status
from neuraldbg.store.reader import RunFile

GRACE: Final = 5.0  # seconds between the polite and the hard end of a trial
SAID: Final = 20  # last lines of a trial's stderr that are kept


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one trial.

    Attributes:
        outcome: How the run went, or None if it left no run file.
        status: What the process said.
        seconds: How long it took.
        stderr: Its last lines.
        cut: Whether it ran out of time.
    """

    outcome: Outcome | None
    status: Status
    seconds: float
    stderr: str
    cut: bool


class Runner:
    """Runs trials of one recorded run.

    Args:
        run: The run.
        scope: What they are judged on; each ends after its last step.
        seconds: Budget for all of them.
        clock: Seconds, increasing.

    Raises:
        UsageError: The command or its working directory is not known or not there any more.
    """

    def __init__(
        self,
        run: RunFact,
        scope: Scope,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._target = _target(run)
        self._scope = scope
        self._clock = clock
        self._ends = clock() + seconds
        self.longest = 0.0
        self.redirected: dict[str, None] = {}
        self._count = 0
        self._folder = tempfile.TemporaryDirectory(prefix="neuraldbg-", ignore_cleanup_errors=True)
        self._base = Path(self._folder.name)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self._ends - self._clock()

    @property
    def affords(self) -> bool:
        """Whether another trial is likely to end in time."""
        return self.left > 0.9 * self.longest

    def trial(
        self, intervention: Intervention | None, seed: int, context: dict[str, Any] | None = None
    ) -> Result:
        """Run one trial to its end or to the end of the budget."""
        spec = self._prepare(seed)
        if intervention is not None:
            spec = replace(spec, intervention=intervention.name, context=context)
        return self._result(spec, compiled=intervention is None or not intervention.eager)

    def look_again(self, first: int, last: int) -> tuple[Record, tuple[SemanticEvent, ...]] | None:
        """Run it unchanged up to a step, and look at each step of a window.

        Args:
            first: The first step of the window.
            last: Its last step, after which the run ends.

        Returns:
            What was observed, and the events kept with it; None if the run left nothing to read.
        """
        spec = replace(self._prepare(0), stop=last, look_from=first)
        self._result(spec, compiled=True)
        try:
            with RunFile(Path(spec.out)) as file:
                return file.record(), file.events()
        except RunFileError:
            return None

    def _prepare(self, seed: int) -> Spec:
        """An unchanged trial in a fresh copy of the working directory."""
        self._count += 1
        folder = self._base / str(self._count)
        folder.mkdir()
        home = Path(self._run.cwd)
        scratch.copy(home, folder / "work")
        name, args, module = self._target
        return Spec(
            name=_moved(name, home, folder / "work"),
            args=args,
            module=module,
            cwd=str(folder / "work"),
            home=str(home),
            out=str(folder / "trial.ndbg"),
            status=str(folder / "status.json"),
            stop=self._scope.last,
            seed=seed,
        )

    def _result(self, spec: Spec, *, compiled: bool) -> Result:
        path = spec.write(Path(spec.status).with_name("spec.json"))
        begun = self._clock()
        process = subprocess.Popen(  # noqa: S603 - the user's own recorded command
            [sys.executable, "-m", "neuraldbg.experiments.trial", str(path)],
            # Not the user's folder: a module of theirs must not shadow one that we need.
            cwd=path.parent,
            env=environment.for_trial(self._run, compiled=compiled),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        said: collections.deque[str] = collections.deque(maxlen=SAID)
        assert process.stderr is not None  # noqa: S101 - asked for above
        reader = threading.Thread(target=_follow, args=(process.stderr, said), daemon=True)
        reader.start()
        cut = False
        try:
            process.wait(max(self.left, 1.0))
        except subprocess.TimeoutExpired:
            cut = True
        finally:
            _end(process)
        reader.join(1.0)
        seconds = self._clock() - begun
        self.longest = max(self.longest, seconds)
        status = Status.read(Path(spec.status))
        self.redirected |= dict.fromkeys(status.redirected)
        return Result(self._read(spec), status, seconds, "".join(said), cut)

    def _read(self, spec: Spec) -> Outcome | None:
        try:
            return outcome.read(Path(spec.out), self._scope)
        except RunFileError:
            return None


def _follow(stream: IO[str], said: collections.deque[str]) -> None:
    with suppress(ValueError, OSError):
        said.extend(line[:500] for line in stream)


def _end(process: subprocess.Popen[str]) -> None:
    """End the whole group, workers of loaders included."""
    for number, grace in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 1.0)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
            if number == signal.SIGTERM:
                continue
            return


def _target(run: RunFact) -> tuple[str, tuple[str, ...], bool]:
    """Script or module of the recorded command."""
    words = list(run.command)
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words:
        msg = f"run {run.id!r} has no command to repeat; record it with `neuraldbg run`"
        raise UsageError(msg)
    home = Path(run.cwd)
    if not run.cwd or not home.is_dir():
        msg = f"the working directory of run {run.id!r} is gone: {run.cwd!r}; put it back there"
        raise UsageError(msg)
    if not module and not (home / words[0]).exists():
        msg = f"the script of run {run.id!r} is not there any more: {str(home / words[0])!r}"
        raise UsageError(msg)
    return words[0], tuple(words[1:]), module


def _moved(name: str, home: Path, work: Path) -> str:
    """A script given by an absolute path below the working directory is run from the copy."""
    path = Path(name)
    inside = path.is_absolute() and path.is_relative_to(home)
    return str(work / path.relative_to(home)) if inside else name
