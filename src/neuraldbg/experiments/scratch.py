"""A scratch copy of the working directory: small files copied, large ones linked."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SMALL: Final = 1_000_000  # bytes of a file that is copied
MOST_BYTES: Final = 64_000_000
MOST_FILES: Final = 2_000
LEFT_OUT: Final = frozenset(
    {".git", ".hg", ".neuraldbg", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache"}
)


@dataclass
class Copied:
    """What became of the files.

    Attributes:
        files, size: How many were copied, and their bytes.
        linked: Files and folders that are links to the user's own; writes to them are
            redirected, so they do not change either.
    """

    files: int = 0
    size: int = 0
    linked: int = 0

    def room(self, size: int) -> bool:
        """Whether a file of that size is still copied."""
        small = size <= SMALL and self.size + size <= MOST_BYTES
        return small and self.files < MOST_FILES


def copy(source: Path, target: Path) -> Copied:
    """Copy a folder.

    Args:
        source: The user's working directory.
        target: A folder that does not exist yet.
    """
    copied = Copied()
    _folder(source, target, copied)
    return copied


def _folder(source: Path, target: Path, copied: Copied) -> None:
    target.mkdir()
    try:
        entries = sorted(os.scandir(source), key=lambda e: (e.is_dir(), e.name))
    except OSError:
        return
    for entry in entries:
        if entry.name not in LEFT_OUT:
            _entry(entry, target / entry.name, copied)


def _entry(entry: os.DirEntry[str], target: Path, copied: Copied) -> None:
    try:
        folder = entry.is_dir(follow_symlinks=False)
        if folder and copied.files < MOST_FILES:
            _folder(Path(entry.path), target, copied)
        elif entry.is_file() and copied.room(size := entry.stat().st_size):
            shutil.copy2(entry.path, target)
            copied.files += 1
            copied.size += size
        elif folder or entry.is_file() or entry.is_dir():
            target.symlink_to(Path(entry.path).resolve(), target_is_directory=entry.is_dir())
            copied.linked += 1
    except OSError:
        return  # a file that cannot be read would not be there for the script either
