"""Opening a run file for reading, in whatever state and folder it was left.

Never changes the file: a run that is still being written, one that was killed and left
its log behind, and one on a read-only disk all open.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from neuraldbg.store import faults
from neuraldbg.store.schema import (
    APPLICATION_ID,
    SCHEMA,
    SIDECARS,
    TABLES,
    pragma,
    read_header,
)

# A reader waits only for a writer without a log, which holds the file for milliseconds.
_LOCK_SECONDS: Final = 5.0


class Opened(NamedTuple):
    """A connection that only reads, and the folder of the copy it reads from, if any."""

    connection: sqlite3.Connection
    scratch: tempfile.TemporaryDirectory[str] | None

    def close(self) -> None:
        """Let go of the file and of the copy."""
        self.connection.close()
        if self.scratch is not None:
            self.scratch.cleanup()


def open_for_reading(path: Path) -> Opened:
    """Open a run file.

    Raises:
        RunFileError: Missing, empty, foreign, too new, damaged or kept from us.
    """
    with faults.reading(path):
        if not path.is_file():
            raise faults.missing(path)
        if path.stat().st_size == 0:
            raise faults.empty(path)
        opened = _open(path)
        try:
            _check(path, opened.connection)
        except BaseException:
            opened.close()
            raise
        return opened


def _open(path: Path) -> Opened:
    try:
        return Opened(_connect(path, "immutable=1" if _is_settled(path) else "mode=ro"), None)
    except sqlite3.OperationalError as error:
        if not faults.is_shut_out(error):
            raise
        return _open_copy(path)


def _is_settled(path: Path) -> bool:
    # A database that wants a log but has none beside it has no writer. SQLite would still
    # make log files, which litters the folder and fails on a read-only disk. The header is
    # not looked at while there is a log: closing a file drops the locks that a writer of
    # this same process holds on it.
    if Path(f"{path}-wal").exists():
        return False
    header = read_header(path)
    return header is not None and header.logged


def _open_copy(path: Path) -> Opened:
    # The folder is read-only and a log has to be recovered: do that on a copy.
    scratch = tempfile.TemporaryDirectory(prefix="neuraldbg-", ignore_cleanup_errors=True)
    copy = Path(scratch.name) / path.name
    try:
        for suffix in ("", *SIDECARS):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        return Opened(_connect(copy, "mode=rw"), scratch)
    except BaseException:
        scratch.cleanup()
        raise


def _connect(path: Path, how: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        # A run file may come from a stranger: nothing in it may run or be believed.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version").fetchone()  # the first real access
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    application = pragma(connection, "application_id")
    if application != APPLICATION_ID:
        found = f"it is an SQLite database of another program (application id {application})"
        raise faults.foreign(path, found)
    version = pragma(connection, "user_version")
    if version > SCHEMA:
        raise faults.too_new(path, version, SCHEMA)
    if version < 1:
        faults.refuse("schema", f"there never was a version {version}")
    # Views and virtual tables in the place of tables could compute without end.
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
    lacking = TABLES.keys() - {name for (name,) in connection.execute(query)}
    if lacking:
        faults.refuse("schema", f"there is no table {min(lacking)}")
