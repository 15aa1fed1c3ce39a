"""Adding to a run file that is complete: what experiments and repetitions have shown."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from neuraldbg.core.events import SemanticEvent
from neuraldbg.errors import RunFileError
from neuraldbg.store import codec

EXPERIMENTS: Final = "experiments"


def experiments(path: Path, json_text: str) -> None:
    """Replace the stored results of experiments.

    Args:
        path: The run file.
        json_text: A JSON object.

    Raises:
        RunFileError: The file cannot be written.
    """
    _insert(path, "INSERT OR REPLACE INTO fact VALUES(?, ?)", [(EXPERIMENTS, json_text)])


def events(path: Path, found: Iterable[SemanticEvent]) -> None:
    """Add events; an earlier one of the same id is replaced.

    Args:
        path: The run file.
        found: What a repetition of the run has shown.

    Raises:
        RunFileError: The file cannot be written.
    """
    rows = [(e.id, e.step, codec.encode(e)) for e in found]
    _insert(path, "INSERT OR REPLACE INTO event VALUES(?, ?, ?)", rows)


def _insert(path: Path, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    uri = f"{path.absolute().as_uri()}?mode=rw"  # never makes a file that is not there
    try:
        with closing(sqlite3.connect(uri, uri=True)) as file, file:
            file.executemany(statement, rows)
    except sqlite3.Error as error:
        msg = f"cannot keep the results in {str(path)!r}: {error}; is it writable?"
        raise RunFileError(msg) from error
