"""Whatever goes wrong while reading becomes one kind of error, with a way out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from neuraldbg.errors import RunFileError
from neuraldbg.store import faults

PATH = Path("/x/r.ndbg")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (sqlite3.DatabaseError("malformed"), "r.ndbg is damaged: malformed"),
        (sqlite3.DataError("too big"), "r.ndbg is damaged: too big"),
        (sqlite3.OperationalError("no such column"), "r.ndbg is damaged: no such column"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "r.ndbg is damaged: .*bad"),
        (MemoryError(), "r.ndbg cannot be opened: .*more memory than there is"),
        (
            PermissionError(13, "Permission denied"),
            "r.ndbg cannot be opened: .*denied.*permissions",
        ),
    ],
)
def test_reading_has_one_kind_of_error(error: Exception, message: str) -> None:
    with pytest.raises(RunFileError, match=message) as caught, faults.reading(PATH):
        raise error
    assert caught.value.__cause__ is error


def test_our_own_errors_pass_and_refusals_gain_the_path() -> None:
    with pytest.raises(RunFileError, match="does not exist"), faults.reading(PATH):
        raise faults.missing(PATH)
    with (
        pytest.raises(RunFileError, match=r"^Run file /x/r\.ndbg is damaged: a: b\. Restore"),
        faults.reading(PATH),
    ):
        faults.refuse("a", "b")


def test_bugs_are_not_hidden() -> None:
    with pytest.raises(KeyError), faults.reading(PATH):
        raise KeyError


def test_a_locked_file_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "r.ndbg"
    with closing(sqlite3.connect(path)) as holder, closing(sqlite3.connect(path, timeout=0)) as us:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RunFileError, match="cannot be opened: database is locked"):  # noqa: SIM117
            with faults.reading(path):
                us.execute("CREATE TABLE t(a)")
