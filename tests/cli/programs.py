"""Starting programs as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PLAIN = [sys.executable]
OURS = [sys.executable, "-m", "neuraldbg"]
RUN = [*OURS, "run"]


@dataclass(frozen=True)
class Ended:
    """What a program left behind; `notices` are the lines of stderr that are ours."""

    code: int
    out: str
    err: str
    notices: str


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the tests, without settings of ours."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NEURALDBG_")}
    return {**kept, **(more or {})}


def start(
    words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program with its output captured."""
    return subprocess.Popen(
        words,
        cwd=folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for a program."""
    out, err = process.communicate(timeout=60)
    lines = err.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith("neuraldbg: ")]
    theirs = [line for line in lines if not line.startswith("neuraldbg: ")]
    return Ended(process.returncode, out, "".join(theirs), "".join(ours))


def call(words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Ended:
    """Run a program to its end."""
    return end(start(words, folder, env))
