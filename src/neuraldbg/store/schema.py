"""The tables of a run file, its two version numbers, and how one is made.

A *frame* is one row of numbers: all channels of one stream at one step. Channels are only
ever appended to a stream, so an older frame is merely shorter. `present` is a bit mask
(NULL: all present), so that "not measured" is never mistaken for NaN.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from neuraldbg.core.facts import Gap
from neuraldbg.store.faults import foreign

SCHEMA: Final = 1  # goes up when an older reader would misread the file
APPLICATION_ID: Final = 0x4E444247  # "NDBG", as `file` and SQLite see it
SUFFIX: Final = ".ndbg"
SIDECARS: Final = ("-wal", "-shm", "-journal")  # what SQLite may keep beside the file

TABLES: Final = {
    "fact": "CREATE TABLE fact(key TEXT PRIMARY KEY, json TEXT)",
    "channel": (
        "CREATE TABLE channel(id INTEGER PRIMARY KEY, stream TEXT, position INT,"
        " kind TEXT, name TEXT, metric TEXT)"
    ),
    "frame": (
        'CREATE TABLE frame(stream TEXT, step INT, "values" BLOB, present BLOB,'
        " PRIMARY KEY(stream, step)) WITHOUT ROWID"
    ),
    "event": "CREATE TABLE event(id TEXT PRIMARY KEY, step INT, json TEXT)",
    "gap": "CREATE TABLE gap(what TEXT, why TEXT, UNIQUE(what, why))",
    "diagnosis": "CREATE TABLE diagnosis(id INTEGER PRIMARY KEY CHECK(id=1), json TEXT)",
}

NO_WAL: Final = Gap(
    "run file",
    "this file system cannot hold a write-ahead log: reading during the run may have to wait",
)

# Long enough to wait for a reader on a file system without a log; only our thread waits.
_LOCK_SECONDS: Final = 30.0
# The log shrinks to this after a checkpoint; SQLite checkpoints at about 4 MB.
_LOG_BYTES: Final = 8 * 1024 * 1024

_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"


class Header(NamedTuple):
    """What the first bytes of a database file say."""

    application: int
    logged: bool  # needs a write-ahead log beside it


def read_header(path: Path) -> Header | None:
    """The header of a database file without opening it as one; None if it is none."""
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        return None
    # Offsets of the SQLite file format: 18 is the write version, 68 the application's id.
    return Header(application=int.from_bytes(head[68:72], "big"), logged=head[18] == 2)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything in the block is stored, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # the first error is the one to hear about
                connection.execute("ROLLBACK")
        raise


def create(path: Path, facts: dict[str, str]) -> sqlite3.Connection:
    """Make a run file, in place of an older one at the same path.

    Args:
        path: Where; the folder is made if need be.
        facts: The JSON of the first facts by key.

    Returns:
        A connection that may write.

    Raises:
        RunFileError: Something else is at that path; it is left alone.
        OSError: The place cannot be written to.
        sqlite3.Error: SQLite cannot write there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path)
    connection = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)
    try:
        with transaction(connection):
            build(connection, facts)
    except BaseException:
        connection.close()
        raise
    return connection


def build(connection: sqlite3.Connection, facts: dict[str, str]) -> None:
    """Create the tables and the version numbers, and store the first facts."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    for statement in TABLES.values():
        connection.execute(statement)
    connection.executemany("INSERT INTO fact VALUES(?, ?)", facts.items())


def clear(path: Path) -> None:
    """Remove an older run file and its sidecars; a stale log must never meet a new file.

    Raises:
        RunFileError: The file at that path is not a run file.
    """
    if path.exists() and path.stat().st_size:
        header = read_header(path)
        if header is None or header.application != APPLICATION_ID:
            raise foreign(path, "something else is there and was left alone")
    path.unlink(missing_ok=True)
    for suffix in SIDECARS:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def start_log(connection: sqlite3.Connection) -> Gap | None:
    """Turn the write-ahead log on, so that readers and the writer never wait for each other.

    Returns:
        None, or the gap to note if the file system cannot do it.
    """
    # NORMAL: a killed process loses nothing; a power cut may lose the last commits, no more.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError:
        mode = ""
    if mode == "wal":
        # The first access makes the log, which tells readers that there is a writer.
        connection.execute("SELECT COUNT(*) FROM fact").fetchone()
        return None
    connection.execute("PRAGMA journal_mode = DELETE")
    return NO_WAL


class Size(NamedTuple):
    """Bytes of the file, and how many of them hold something."""

    total: int
    used: int


def size(connection: sqlite3.Connection) -> Size:
    """How large the file is, from its header; cheap."""
    numbers = (pragma(connection, name) for name in ("page_size", "page_count", "freelist_count"))
    page, count, free = numbers
    return Size(page * count, page * (count - free))


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """A number that SQLite keeps under this name."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
