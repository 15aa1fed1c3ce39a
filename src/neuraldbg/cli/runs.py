"""From the RUN of the command line to what is known about it; never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis
    from neuraldbg.core.record import Record


@dataclass(frozen=True, slots=True)
class Opened:
    """A run file, read and diagnosed by the engine of this version."""

    path: Path
    record: Record
    diagnosis: Diagnosis

    @property
    def empty(self) -> bool:
        """Whether no training was recorded at all."""
        return not self.record.facts.run.steps and not self.record.channels


def read(run: str) -> tuple[Path, Record]:
    """The run file of that name and everything that was observed.

    Raises:
        RunFileError: There is no such run, or its file cannot be read.
    """
    from neuraldbg.store.locate import resolve
    from neuraldbg.store.reader import load_record

    path = resolve(run)
    return path, load_record(path)


def diagnose(run: str) -> Opened:
    """The run of that name, diagnosed again.

    Raises:
        RunFileError: There is no such run, or its file cannot be read.
    """
    from neuraldbg.run import diagnose_open
    from neuraldbg.store.locate import resolve
    from neuraldbg.store.reader import RunFile

    path = resolve(run)
    with RunFile(path) as opened:
        record = opened.record()
        return Opened(path, record, diagnose_open(opened, record))
