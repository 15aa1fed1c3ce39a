"""Who is writing a run file right now, so that a second run never takes its place.

Replacing a database under a live writer damages both. The writer leaves its process in the
file and takes it out at the end; after a crash the process is gone, which shows.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from neuraldbg.errors import RunFileError
from neuraldbg.store import codec
from neuraldbg.store.opening import open_for_reading

FACT: Final = "writer"


def claim() -> str:
    """This process, as the JSON of a fact."""
    return codec.encode(_identity(os.getpid()))


def check(path: Path) -> None:
    """Make sure that no live process writes the file at that path.

    Processes of other machines, and of systems without `/proc`, cannot be looked up.

    Raises:
        RunFileError: One does.
    """
    claimed = _claimed(path)
    pid = claimed.get("pid")
    if isinstance(pid, int) and claimed == _identity(pid) and claimed["born"] is not None:
        message = (
            f"Run file {path} is being written by process {pid}. "
            "Give this run another one, with `--out PATH` or `out=...`."
        )
        raise RunFileError(message)


def _claimed(path: Path) -> dict[str, object]:
    try:
        opened = open_for_reading(path)
    except RunFileError:  # nothing there, or nothing that anyone could be writing
        return {}
    try:
        query = "SELECT json FROM fact WHERE key = ?"
        row = opened.connection.execute(query, (FACT,)).fetchone()
    finally:
        opened.close()
    claimed = codec.parse(row[0], FACT) if row else None
    return claimed if isinstance(claimed, dict) else {}


def _identity(pid: int) -> dict[str, object]:
    return {"pid": pid, "host": socket.gethostname(), "born": _born(pid)}


def _born(pid: int) -> str | None:
    # Numbers of processes are used again, the more so in containers; the start time is not.
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    state, start = fields[0], fields[19]
    return None if state == "Z" else start
