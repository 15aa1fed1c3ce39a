"""Reading a run file: while it is written, after a crash, or much later. Without torch."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Channel, Facts, Gap, Kind
from neuraldbg.core.metrics import L_VALUE, STEP
from neuraldbg.core.record import EMPTY, Record, Series
from neuraldbg.store import load
from neuraldbg.store.faults import reading
from neuraldbg.store.opening import open_for_reading


def load_record(path: Path) -> Record:
    """Everything that was observed in a run.

    Args:
        path: The run file.

    Raises:
        RunFileError: The file is missing, damaged, foreign or too new; the message says which.
    """
    with RunFile(path) as run:
        return run.record()


def changed(path: Path) -> list[int]:
    """When a run file and its log were last written to; a log is overwritten in place.

    Returns:
        Times in nanoseconds; none if there is no such file.
    """
    files = (path, Path(f"{path}-wal"))
    return [file.stat().st_mtime_ns for file in files if file.exists()]


class RunFile:
    """A run file open for reading.

    Every method raises `RunFileError` if it meets damage.

    Args:
        path: The run file. It is never changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._opened = open_for_reading(self.path)

    def record(self) -> Record:
        """Facts and series; one consistent picture also while the run goes on."""
        with reading(self.path):
            return load.record(self._opened.connection)

    def loss(self) -> Series:
        """The loss of every step alone; quick however wide the model."""
        with reading(self.path):
            found = load.series(self._opened.connection, [STEP])
        return found.get(Channel(Kind.LOSS, "loss", L_VALUE), EMPTY)

    def facts(self) -> Facts:
        """The static facts alone; quick however long the run was."""
        with reading(self.path):
            return load.facts(self._opened.connection)

    def events(self) -> tuple[SemanticEvent, ...]:
        """The events that were stored with the run, in order of step."""
        with reading(self.path):
            return load.events(self._opened.connection)

    def gaps(self) -> tuple[Gap, ...]:
        """What could not be observed."""
        with reading(self.path):
            return load.gaps(self._opened.connection)

    def diagnosis_json(self) -> str | None:
        """The stored diagnosis (a JSON object), or None if there is none."""
        with reading(self.path):
            return load.diagnosis(self._opened.connection)

    def experiments_json(self) -> str | None:
        """The stored results of experiments (a JSON object), or None if there are none."""
        with reading(self.path):
            return load.experiments(self._opened.connection)

    @property
    def size(self) -> int:
        """Bytes on disk, with the log of a run that goes on or was cut off."""
        with reading(self.path):
            log = Path(f"{self.path}-wal")
            return self.path.stat().st_size + (log.stat().st_size if log.exists() else 0)

    def close(self) -> None:
        """Let go of the file."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RunFile({str(self.path)!r})"
