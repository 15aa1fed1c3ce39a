"""What the tests of the run file share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from neuraldbg.core.events import EventType, GradientHealth, SemanticEvent
from neuraldbg.core.facts import Channel, Kind, RunFact
from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.store.writer import RunWriter

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def fact() -> RunFact:
    return RunFact(id="r1", command=("train.py", "--lr", "3"), started="2026-12-02T10:15:30")


@pytest.fixture
def event() -> SemanticEvent:
    return SemanticEvent(
        id="e1",
        kind=EventType.GRADIENT,
        where="blocks.3",
        step=40,
        before=GradientHealth.HEALTHY,
        after=GradientHealth.VANISHING,
        confidence=0.8,
        metadata={"norm": float("nan"), "ratio": float("inf"), "note": "nan"},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r1.ndbg"


@pytest.fixture
def writer(path: Path, fact: RunFact) -> Iterator[RunWriter]:
    """A writer with a loss in the stream STEP and four channels in LOOK."""
    made = RunWriter(path, fact)
    made.channels(STEP, [Channel(Kind.LOSS, "loss", "value")])
    made.channels(LOOK, [Channel(Kind.MODULE, f"m{i}", "act_rms") for i in range(4)])
    yield made
    made.close()


@pytest.fixture
def finished(writer: RunWriter, path: Path, event: SemanticEvent) -> Path:
    """A small run file with something of everything, closed."""
    for step in range(50):
        writer.frame(STEP, step, np.array([1.0 / (step + 1)]))
    for step in range(0, 50, 5):
        writer.frame(LOOK, step, np.full(4, step, np.float32), np.array([1, 1, 0, 1], bool))
    writer.event(event)
    writer.diagnosis('{"verdict": "failed", "hypotheses": [{"cause": "lr_too_high"}]}')
    writer.close()
    return path


@pytest.fixture
def python() -> Run:
    """Run Python code in a process of its own; warnings are errors there too."""

    def run(code: str, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-c", code, *map(str, args)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=os.environ
        )

    return run
