"""Where files of a run go, and how they are named to the user."""

from __future__ import annotations

import os
from pathlib import Path


def here() -> Path | None:
    """The working directory, or None if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def near(path: Path) -> Path:
    """The path as seen from the working directory, where it lies below it."""
    folder = here()
    return path.relative_to(folder) if folder and path.is_relative_to(folder) else path


def reference(path: Path, run: str) -> str:
    """How to name a run on the command line: by id where that is enough."""
    from neuraldbg.store.locate import runs_dir

    return run if path.resolve().parent == runs_dir().resolve() else str(near(path))


def rank() -> int:
    """Which process of a distributed run this is; 0 otherwise."""
    word = os.environ.get("RANK", "")
    return int(word) if word.isdecimal() else 0


def for_rank(path: Path | None) -> Path | None:
    """The path, made one of its own for every rank but the first."""
    number = rank()
    return path.with_name(f"{path.stem}.rank{number}{path.suffix}") if path and number else path


def write(target: Path, content: str | bytes) -> None:
    """Write a file whole or not at all."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
