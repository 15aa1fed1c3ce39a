"""What a trial is told: one JSON file for each process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Spec:
    """One trial: a training run with at most one thing changed.

    Attributes:
        name, args, module: The script, or the module, and its arguments.
        cwd: Where it runs: a scratch copy of the working directory.
        home: The working directory that was copied; nothing is written there.
        out: The run file to write.
        status: Where the process says whether it found anything to change.
        intervention: Name of the change; empty for none.
        context: What the run file knows that the change may need.
        stop: The step after which the process ends by itself.
        seed: Number of the replicate; 0 leaves the script's own seeds.
        look_from: The step from which on each is looked at; None leaves that to the budget.
    """

    name: str
    args: tuple[str, ...]
    module: bool
    cwd: str
    home: str
    out: str
    status: str
    intervention: str = ""
    context: dict[str, Any] | None = None
    stop: int = 0
    seed: int = 0
    look_from: int | None = None

    def write(self, path: Path) -> Path:
        """Write it for the process to read."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Spec:
        """Read it in the process."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "args": tuple(data["args"])})


@dataclass(frozen=True, slots=True)
class Status:
    """What a trial says of itself.

    Attributes:
        applied: How often the intervention changed something.
        trouble: What kept it from being applied.
        redirected: Paths that the script wrote to and that were kept in the scratch copy.
    """

    applied: int = 0
    trouble: str = ""
    redirected: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write it for the runner."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Status:
        """Read it; a process that was killed leaves none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls(trouble="the process left no word")
        return cls(data["applied"], data["trouble"], tuple(data["redirected"]))
