"""The making of a run file: its marks, its log, and what it replaces."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from neuraldbg.errors import RunFileError
from neuraldbg.store import schema


def test_a_new_file_carries_both_marks(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "r.ndbg"
    with closing(schema.create(path, {"run": "{}"})) as connection:
        assert schema.pragma(connection, "application_id") == schema.APPLICATION_ID
        assert schema.pragma(connection, "user_version") == schema.SCHEMA == 1
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        assert schema.TABLES.keys() <= names
    assert schema.read_header(path) == schema.Header(schema.APPLICATION_ID, logged=False)


def test_the_log_is_on(tmp_path: Path) -> None:
    path = tmp_path / "r.ndbg"
    with closing(schema.create(path, {})) as connection:
        assert schema.start_log(connection) is None
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert schema.read_header(path) == schema.Header(schema.APPLICATION_ID, logged=True)


def test_a_file_system_without_a_log_is_a_gap_and_still_written(tmp_path: Path) -> None:
    # This way of locking has no shared memory, as on some network file systems.
    uri = (tmp_path / "r.ndbg").as_uri() + "?vfs=unix-dotfile"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        schema.build(connection, {"run": "{}"})
        assert schema.start_log(connection) == schema.NO_WAL
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        with schema.transaction(connection):
            connection.execute("INSERT INTO gap VALUES('a', 'b')")
        assert connection.execute("SELECT * FROM gap").fetchall() == [("a", "b")]


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    with closing(schema.create(tmp_path / "r.ndbg", {})) as connection:
        with pytest.raises(sqlite3.IntegrityError), schema.transaction(connection):
            connection.executemany("INSERT INTO gap VALUES('a', ?)", [("b",), ("b",)])
        assert connection.execute("SELECT * FROM gap").fetchall() == []
        assert not connection.in_transaction


def test_an_older_run_goes_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "r.ndbg"
    schema.create(path, {}).close()
    for suffix in schema.SIDECARS:
        Path(f"{path}{suffix}").write_bytes(b"stale")
    schema.clear(path)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.ndbg"
    path.touch()
    schema.create(path, {}).close()
    assert schema.read_header(path) is not None


@pytest.mark.parametrize("content", [b"import torch\n" * 50, b"x", b"SQLite format 3\0" * 20])
def test_anything_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(content)
    with pytest.raises(RunFileError, match=r"train\.py is not a NeuralDBG run file"):
        schema.create(path, {})
    assert path.read_bytes() == content


def test_size_tells_full_pages_from_free_ones(tmp_path: Path) -> None:
    path = tmp_path / "r.ndbg"
    with closing(schema.create(path, {})) as connection:
        connection.execute("INSERT INTO fact VALUES('a', ?)", ("x" * 100_000,))
        full = schema.size(connection)
        connection.execute("DELETE FROM fact")
        thinned = schema.size(connection)
    assert full.total == full.used == thinned.total == path.stat().st_size
    assert full.used - thinned.used >= 96_000
