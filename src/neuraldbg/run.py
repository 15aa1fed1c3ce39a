"""A run on disk: load it, diagnose it, keep the diagnosis with it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.core.diagnosis import Diagnosis
    from neuraldbg.core.facts import Gap
    from neuraldbg.core.record import Record
    from neuraldbg.store.reader import RunFile


class Run:
    """A finished, crashed or still running run, read without torch.

    Args:
        path: The run file.

    Raises:
        RunFileError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        from neuraldbg.store.reader import load_record

        self.path = path
        self.record: Record = load_record(path)

    def diagnosis(self) -> Diagnosis:
        """Diagnose the run with the current engine."""
        return diagnose_file(self.path)

    def __repr__(self) -> str:
        facts = self.record.facts.run
        return f"Run({facts.id}, {facts.steps} steps, finished {facts.finished})"


def load(run: str | os.PathLike[str]) -> Run:
    """Open a run by path, by id, or `last`.

    Raises:
        RunFileError: There is no such run, or it cannot be read.
    """
    from neuraldbg.store.locate import resolve

    return Run(resolve(os.fspath(run)))


def explain(run: str | os.PathLike[str]) -> Diagnosis:
    """Diagnose a run by path, by id, or `last`.

    Raises:
        RunFileError: There is no such run, or it cannot be read.
    """
    return load(run).diagnosis()


def diagnose_file(path: Path, gaps: Iterable[Gap] = ()) -> Diagnosis:
    """Diagnose a run file, with what experiments have shown since.

    Args:
        path: The run file.
        gaps: What else could not be observed, in case it never reached the file.
    """
    from neuraldbg.store.reader import RunFile

    with RunFile(path) as file:
        record = file.record()
        stored = record.facts.gaps
        more = (*stored, *(gap for gap in gaps if gap not in stored))
        return diagnose_open(file, replace(record, facts=replace(record.facts, gaps=more)))


def diagnose_open(file: RunFile, record: Record) -> Diagnosis:
    """Diagnose a run file that is open and was read."""
    from neuraldbg.core.engine import diagnose
    from neuraldbg.experiments import results

    tested = results.parse(file.experiments_json())
    if tested is None:
        found = diagnose(record, file.events())
    else:
        plausible = diagnose(record, file.events(), least=results.PLAUSIBLE)
        found = results.apply(plausible, tested)
    return replace(found, source=file.path)
