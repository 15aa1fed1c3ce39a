"""What can be wrong with a run file, said so that a tired person knows what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from neuraldbg.errors import RunFileError

_REMEDY: Final = "Restore it from a copy, or run the training under NeuralDBG again."


class DamageError(RunFileError):
    """Content that cannot be right. Says which; the reader adds the path and the remedy."""


def refuse(where: str, found: str) -> NoReturn:
    """Refuse a part of the content.

    Args:
        where: Which part.
        found: What is wrong with it.

    Raises:
        RunFileError: Always.
    """
    message = f"{where}: {found}"
    raise DamageError(message)


def missing(path: Path) -> RunFileError:
    """The error for a path with nothing, or with a folder, behind it."""
    found = "is a folder" if path.is_dir() else "does not exist"
    return RunFileError(
        f"No run file at {path}: it {found}. `neuraldbg list` shows the known runs."
    )


def empty(path: Path) -> RunFileError:
    """The error for a file of zero bytes."""
    return RunFileError(
        f"Run file {path} is empty (0 bytes): it was cut off before anything was written. "
        "Run the training under NeuralDBG again."
    )


def foreign(path: Path, found: str) -> RunFileError:
    """The error for a file that NeuralDBG did not write."""
    return RunFileError(
        f"{path} is not a NeuralDBG run file: {found}. "
        "Check the path; run files end in `.ndbg` and `neuraldbg list` shows the known ones."
    )


def too_new(path: Path, found: int, known: int) -> RunFileError:
    """The error for a schema version of the future."""
    return RunFileError(
        f"Run file {path} has schema version {found}; this NeuralDBG reads up to {known}. "
        "Upgrade it: pip install --upgrade neuraldbg"
    )


def damaged(path: Path, found: object) -> RunFileError:
    """The error for a file that starts well and goes wrong further in."""
    return RunFileError(f"Run file {path} is damaged: {found}. {_REMEDY}")


def unreadable(path: Path, found: object) -> RunFileError:
    """The error for a file that the system or another program keeps from us."""
    return RunFileError(
        f"Run file {path} cannot be opened: {found}. "
        "Check its permissions and that no other program holds it, then try again."
    )


def uncreatable(path: Path, found: object) -> RunFileError:
    """The error for a place that cannot be written to."""
    return RunFileError(
        f"Cannot create the run file {path}: {found}. "
        "Give a folder that can be written to: `--out PATH`, `out=...` or $NEURALDBG_DIR."
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while reading a run file into a `RunFileError`.

    Args:
        path: The file being read, for the message.

    Raises:
        RunFileError: The file is damaged, locked or kept from us.
    """
    try:
        yield
    except DamageError as error:
        raise damaged(path, error) from error
    except RunFileError:
        raise
    except sqlite3.OperationalError as error:
        blame = unreadable if _is_access(error) else damaged
        raise blame(path, error) from error
    except sqlite3.Error as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise foreign(path, str(error)) from error
        raise damaged(path, error) from error
    except UnicodeDecodeError as error:  # SQLite's own message, quoting a damaged name
        raise damaged(path, error) from error
    except MemoryError as error:
        found = "it asks for more memory than there is, as damaged files do"
        raise unreadable(path, found) from error
    except OSError as error:
        raise unreadable(path, error) from error


# OperationalErrors that say nothing about the content.
_ACCESS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
    }
)


def is_shut_out(error: sqlite3.Error) -> bool:
    """Whether SQLite could not open a log next to the file (as on read-only folders)."""
    return _code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def _is_access(error: sqlite3.Error) -> bool:
    return _code(error) in _ACCESS


def _code(error: sqlite3.Error) -> int:
    # The low byte of an extended code is the plain code. Errors of the Python module have none.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
