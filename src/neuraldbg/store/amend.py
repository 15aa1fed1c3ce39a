"""Adding to a run file that is complete: the results of experiments."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from neuraldbg.errors import RunFileError

EXPERIMENTS: Final = "experiments"


def experiments(path: Path, json_text: str) -> None:
    """Replace the stored results of experiments.

    Args:
        path: The run file.
        json_text: A JSON object.

    Raises:
        RunFileError: The file cannot be written.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"  # never makes a file that is not there
    try:
        with closing(sqlite3.connect(uri, uri=True)) as file, file:
            file.execute("INSERT OR REPLACE INTO fact VALUES(?, ?)", (EXPERIMENTS, json_text))
    except sqlite3.Error as error:
        msg = f"cannot keep the results in {str(path)!r}: {error}; is it writable?"
        raise RunFileError(msg) from error
