"""Where run files are, what they are called, and which one is meant."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from neuraldbg.errors import RunFileError
from neuraldbg.store.reader import RunFile
from neuraldbg.store.schema import SUFFIX

LAST: Final = "last"

_FOLDER: Final = ".neuraldbg"
_VARIABLE: Final = "NEURALDBG_DIR"
_STAMP: Final = "%Y%m%d-%H%M%S"
_STAMPED: Final = re.compile(r"\d{8}-\d{6}(?=-)")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]+")
_NAME_LENGTH: Final = 32  # of the script's name in an id; keeps ids on one line
_NEAREST: Final = 3


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of a list of runs.

    Attributes:
        id: The file's name without its suffix.
        path: The file.
        started: As the run noted it; empty for a damaged file.
        finished: `ok`, `exception`, `interrupted`, or None while (or because) it was cut off.
        steps: Training steps.
        size: Bytes on disk.
        verdict: Of the stored diagnosis, or None.
        cause: The first cause of the stored diagnosis, or None.
        error: Why the file cannot be read, or None.
    """

    id: str
    path: Path
    started: str = ""
    finished: str | None = None
    steps: int = 0
    size: int = 0
    verdict: str | None = None
    cause: str | None = None
    error: str | None = None


def runs_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder of run files: `$NEURALDBG_DIR`, or `.neuraldbg` in the working directory.

    Args:
        env: The environment; the process's own if not given.
    """
    chosen = (os.environ if env is None else env).get(_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.cwd() / _FOLDER


def new_run_id(script_name: str, now: datetime) -> str:
    """A fresh id that sorts by time, e.g. `20261202-101530-train-3f2a`.

    Args:
        script_name: Name or path of the script.
        now: Local time.
    """
    name = _UNSAFE.sub("-", Path(script_name).stem).strip("-")[:_NAME_LENGTH].strip("-")
    # From the system's entropy: `random` would move the generator that the training uses.
    return f"{now.strftime(_STAMP)}-{name or 'run'}-{secrets.token_hex(2)}"


def resolve(run: str, env: Mapping[str, str] | None = None) -> Path:
    """The run file that a person means.

    Args:
        run: A path, an id with or without its suffix, or `last`.
        env: The environment; the process's own if not given.

    Raises:
        RunFileError: There is no such run; names the nearest ones.
    """
    known = _known(runs_dir(env))
    if run == LAST:
        if not known:
            raise _unknown(run, env)
        return known[0]
    path = Path(run).expanduser()
    if path.is_file():
        return path
    name = run.removesuffix(SUFFIX)
    for candidate in known:
        if candidate.stem == name:
            return candidate
    raise _unknown(run, env)


def list_runs(folder: Path | None = None) -> list[RunSummary]:
    """The runs of a folder, the newest first. Damaged files carry their error.

    Args:
        folder: The folder; `runs_dir()` if not given.
    """
    return [_summary(path) for path in _known(runs_dir() if folder is None else folder)]


def _known(folder: Path) -> list[Path]:
    try:
        paths = [path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        message = f"Cannot list the runs in {folder}: {error}. Check its permissions."
        raise RunFileError(message) from error
    return sorted(paths, key=_age, reverse=True)


def _age(path: Path) -> tuple[str, float]:
    # The id first: copying a file changes its time, and so may the system's clock of a disk.
    try:
        changed = path.stat().st_mtime
    except OSError:  # removed this moment
        changed = 0.0
    stamp = _STAMPED.match(path.name)
    return (stamp[0] if stamp else datetime.fromtimestamp(changed).strftime(_STAMP)), changed


def _unknown(run: str, env: Mapping[str, str] | None) -> RunFileError:
    folder = runs_dir(env)
    ids = [path.stem for path in _known(folder)]
    near = get_close_matches(run.removesuffix(SUFFIX), ids, _NEAREST, cutoff=0.0)
    if not near:
        hint = f"There are no runs in {folder}; `neuraldbg run script.py` makes one."
    else:
        hint = f"The nearest of {len(ids)} in {folder}: {', '.join(near)}."
    what = "No last run" if run == LAST else f"No run {run!r}, neither a file nor a known id"
    return RunFileError(f"{what}. {hint}")


def _summary(path: Path) -> RunSummary:
    try:
        with RunFile(path) as file:
            fact = file.facts().run
            verdict, cause = _conclusion(file.diagnosis_json())
            size = file.size
    except RunFileError as error:
        return RunSummary(path.stem, path, size=_size(path), error=str(error))
    return RunSummary(
        id=path.stem,
        path=path,
        started=fact.started,
        finished=fact.finished,
        steps=fact.steps,
        size=size,
        verdict=verdict,
        cause=cause,
    )


def _conclusion(diagnosis: str | None) -> tuple[str | None, str | None]:
    if diagnosis is None:
        return None, None
    match json.loads(diagnosis):
        case {"verdict": str(verdict), "hypotheses": [{"cause": str(cause)}, *_]}:
            return verdict, cause
        case {"verdict": str(verdict)}:
            return verdict, None
    return None, None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
