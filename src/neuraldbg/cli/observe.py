"""Observing a script from the outside; whatever goes wrong here, the script goes on."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuraldbg.cli import places, terminal
from neuraldbg.cli.arrival import upon
from neuraldbg.cli.output import Notices
from neuraldbg.cli.progress import Progress
from neuraldbg.config import DEFAULT_BUDGET
from neuraldbg.errors import UsageError

if TYPE_CHECKING:
    from neuraldbg.cli.live import Live
    from neuraldbg.core.diagnosis import Diagnosis
    from neuraldbg.core.facts import Gap

_SAID: Final = 300  # characters of an error's message
_UNTRAINED: Final = (
    "no optimizer step was seen in this process (training in child processes is not seen)"
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked of `run`.

    Attributes:
        seed: Seed of all random numbers, or None to leave them alone.
        eager: Run file of the same script without compilation, to compare with.
        live: Whether to draw the run on the terminal while it trains.
    """

    json: Path | None = None
    out: Path | None = None
    budget: float = DEFAULT_BUDGET
    quiet: bool = False
    strict: bool = False
    seed: int | None = None
    eager: Path | None = None
    live: bool = False


class Observation:
    """One observed run of a script, from before its first line to its diagnosis.

    Args:
        command: The script or `-m module`, and its arguments.
        wishes: What the user asked for.
        notices: Where to print.
    """

    def __init__(self, command: Sequence[str], wishes: Wishes, notices: Notices) -> None:
        self._command = list(command)
        self._wishes = wishes
        self._notices = notices
        self._process = os.getpid()
        self._path = list(sys.path)
        self._folder = places.here()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._session: Any = None
        self._live: Live | None = None
        self._trouble: list[tuple[str, str]] = []
        self._done = False

    def start(self) -> None:
        """Attach as soon as the script imports torch.

        Raises:
            UsageError: There is no torch, and the user asked for strictness.
        """
        if self._wishes.seed is not None:
            _seed(self._wishes.seed)
        if _torch_is_there():
            upon("torch", self._attach)
        elif self._wishes.strict:
            msg = "torch is not installed: nothing can be observed; install it or drop --strict"
            raise UsageError(msg)

    def _attach(self) -> None:
        """Begin to observe; under strictness a failure is raised from `import torch`."""
        if self._done or os.getpid() != self._process:
            return
        try:
            from neuraldbg.torch import attach

            self._session = attach.start(
                out=self._wishes.out or self._elsewhere(),
                budget=self._wishes.budget,
                strict=self._wishes.strict,
                command=self._command,
                progress=Progress(self._notices) if self._chatty else None,
                seed=self._wishes.seed,
                eager=self._wishes.eager,
            )
        except Exception as error:
            if self._wishes.strict:
                raise
            self._fail("observation", error, "the script runs unobserved")
        else:
            if self._wishes.live:
                self._show()

    def _show(self) -> None:
        """Draw the run while it trains."""
        from neuraldbg.cli import live

        try:
            self._live = live.start(Path(self._session.path), self._notices, self._path[1:])
        except Exception as error:
            self._session.gap("the live view", f"it could not be started: {_say(error)}")

    def _hide(self) -> None:
        """Give the terminal back before the report is printed."""
        if self._live is not None and (failed := self._live.stop()):
            self._session.gap("the live view", f"it failed: {failed}")

    def _elsewhere(self) -> Path | None:
        """A run file in the first working directory, if the script has left it already."""
        if self._folder is None or places.here() == self._folder:
            return None
        from neuraldbg.store.locate import new_run_id, runs_dir
        from neuraldbg.store.schema import SUFFIX

        script = next(word for word in self._command if word != "-m")
        name = new_run_id(script, datetime.now(UTC))
        return self._folder / runs_dir() / f"{name}{SUFFIX}"

    def finish(self, finished: str, exception: BaseException | None) -> None:
        """Close the run file, diagnose, write what was asked for; once, and in this process."""
        if self._done or os.getpid() != self._process:
            return
        self._done = True
        with self._undisturbed():
            try:
                self._conclude(finished, exception)
            except (Exception, KeyboardInterrupt) as error:
                self._fail("report", error, "the script is not affected")

    def _conclude(self, finished: str, exception: BaseException | None) -> None:
        self._hide()
        diagnosis = self._diagnose(finished, exception)
        if self._wishes.json is not None:
            self._write(self._wishes.json, diagnosis, finished)
        self._print(diagnosis)

    def _diagnose(self, finished: str, exception: BaseException | None) -> Diagnosis:
        if self._session is not None:
            try:
                diagnosis: Diagnosis | None = self._session.finish(finished, exception)
            except (Exception, KeyboardInterrupt) as error:
                self._fail("diagnosis", error, "`neuraldbg explain last` may do better")
            else:
                if diagnosis is not None:
                    return diagnosis
        if not self._trouble:
            self._trouble.append(("training", self._absence()))
        return self._nothing(finished)

    def _absence(self) -> str:
        """Why no training was seen."""
        if self._session is not None:
            return _UNTRAINED
        return "torch was not imported" if _torch_is_there() else "torch is not installed"

    def _nothing(self, finished: str) -> Diagnosis:
        """The diagnosis of a run that nothing is known about, but for why."""
        from neuraldbg import __version__
        from neuraldbg.core.diagnosis import Diagnosis
        from neuraldbg.core.facts import Facts, Gap, RunFact

        gaps: tuple[Gap, ...] = tuple(Gap(what, why) for what, why in self._trouble)
        run = RunFact(
            id="none" if self._session is None else Path(self._session.path).stem,
            command=tuple(self._command),
            started=self._started,
            python=".".join(map(str, sys.version_info[:3])),
            torch=str(getattr(sys.modules.get("torch"), "__version__", "")),
            neuraldbg=__version__,
            finished=finished,
        )
        return Diagnosis(Facts(run, gaps=gaps), verdict="healthy", gaps=gaps)

    def _write(self, target: Path, diagnosis: Diagnosis, finished: str) -> None:
        from neuraldbg.report.json import dumps

        try:
            text = dumps(diagnosis)
        except Exception as error:  # a file must be written all the same
            self._fail("diagnosis", error, "the JSON holds no finding")
            text = dumps(self._nothing(finished))
        try:
            places.write(target, text + "\n")
        except OSError as error:
            self._fail(f"JSON file {target}", error, "the run file is complete")

    def _print(self, diagnosis: Diagnosis) -> None:
        from neuraldbg.report import text, words

        run = diagnosis.facts.run
        if places.rank() or (self._wishes.quiet and diagnosis.verdict == "healthy"):
            return
        if self._wishes.quiet or not run.steps:
            said = words.headline(diagnosis)
            first = diagnosis.hypotheses[:1]
            self._notices.say(" ".join([said, *(f"Cause: {words.cause(h)}" for h in first)]))
            return
        path = Path(self._session.path)
        report = text.render(diagnosis, run=places.reference(path, run.id))
        whole = f"{' NeuralDBG ':-^80}\n{report}{self._curve(path)}Run file: {places.near(path)}\n"
        self._notices.block("\n" + (terminal.painted(whole) if self._coloured else whole))

    def _curve(self, path: Path) -> str:
        """The loss as a line of bars, for a person at a terminal."""
        if not self._coloured:
            return ""
        from neuraldbg.report import spark
        from neuraldbg.store.reader import RunFile

        with RunFile(path) as file:
            told = spark.told(file.loss())
        return f"Loss   {told}\n" if told else ""

    @property
    def _coloured(self) -> bool:
        return terminal.wanted(self._notices.stream)

    @property
    def _chatty(self) -> bool:
        seen = self._notices.terminal and not self._wishes.live
        return seen and not self._wishes.quiet and not places.rank()

    def _fail(self, what: str, error: BaseException, so: str) -> None:
        self._trouble.append((what, f"NeuralDBG failed: {_say(error)}"))
        self._notices.say(f"warning: {what} failed ({_say(error)}); {so}")

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Our own import path, no warnings, no floating-point traps: a script may set any."""
        theirs = list(sys.path)
        sys.path[:] = self._path
        numpy = sys.modules.get("numpy")
        try:
            with (
                warnings.catch_warnings(),
                numpy.errstate(all="ignore") if numpy else nullcontext(),
            ):
                warnings.simplefilter("ignore")
                yield
        finally:
            sys.path[:] = theirs


def _seed(seed: int) -> None:
    """Seed Python's random numbers now, and numpy's once it is imported."""
    import random

    random.seed(seed)
    upon("numpy", lambda: sys.modules["numpy"].random.seed(seed))


def _torch_is_there() -> bool:
    return "torch" in sys.modules or find_spec("torch") is not None


def _say(error: BaseException) -> str:
    """The error in one line, however long its message."""
    line = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return line if len(line) <= _SAID else f"{line[:_SAID]} ..."
