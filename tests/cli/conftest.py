"""Runs to read, made without training."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from neuraldbg.core import metrics
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.facts import (
    Channel,
    Facts,
    Gap,
    Kind,
    LossFact,
    ModuleFact,
    OptimizerFact,
    Overhead,
    ParamFact,
    RunFact,
)


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c() -> Iterator[None]:
    """Scripts meet Ctrl-C as in a terminal, also where the tests run in the background.

    A shell without job control starts background processes with SIGINT ignored, which their
    children inherit.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


RUN_ID = "20260102-030405-train-abcd"


def fact(steps: int = 3, finished: str | None = "ok") -> RunFact:
    """A run of a script with a secret in its arguments."""
    return RunFact(
        id=RUN_ID,
        command=("train.py", "--token", "sesame"),
        cwd="/somewhere/private",
        started="2026-01-02T03:04:05+00:00",
        neuraldbg="0.1.0",
        python="3.11.7",
        torch="2.13.0",
        steps=steps,
        finished=finished,
    )


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs, made the one that `last` looks in; empty."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setenv("NEURALDBG_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def recorded(runs: Path) -> Path:
    """A run file with three steps of a tiny model."""
    from neuraldbg.store.writer import RunWriter

    path = runs / f"{RUN_ID}.ndbg"
    writer = RunWriter(path, fact())
    writer.modules(
        [
            ModuleFact("", "Sequential", leaf=False, order=0, training=True, calls=1),
            ModuleFact("0", "Linear", order=1, training=True, calls=1, config={"out": 4}),
            ModuleFact("1", "ReLU", order=2, training=True, calls=1),
        ]
    )
    writer.params([ParamFact("0.weight", (4, 4), optimizer=0), ParamFact("0.bias", (4,))])
    writer.optimizers([OptimizerFact(0, "SGD", ({"lr": 0.1},), 2, foreign=1, steps=3)])
    writer.losses([LossFact(kind="mse", reduction="mean", ops=("MseLoss", "Addmm"))])
    writer.gap(Gap("input statistics", "the batch is a custom class"))
    writer.overhead(Overhead(0.01, 0.2))
    site = [
        Channel(Kind.MODULE, "0", metrics.ACT_RMS),
        Channel(Kind.MODULE, "0", metrics.GRAD_RMS),
        Channel(Kind.PARAM, "0.weight", metrics.P_RATIO),
    ]
    writer.channels(metrics.LOOK, site)
    writer.channels(metrics.STEP, [Channel(Kind.LOSS, "loss", metrics.L_VALUE)])
    for step, loss in enumerate((2.5, 1.25, float("nan"))):
        writer.frame(metrics.LOOK, step, np.array([1.0 + step, 0.5, 0.001]))
        writer.frame(metrics.STEP, step, np.array([loss]))
    writer.close()
    return path


@pytest.fixture
def untrained(runs: Path) -> Path:
    """A run file in which nothing was recorded."""
    from neuraldbg.store.writer import RunWriter

    path = runs / "20260102-040405-train-beef.ndbg"
    writer = RunWriter(path, fact(steps=0))
    writer.close()
    return path


@pytest.fixture
def concluded(monkeypatch: pytest.MonkeyPatch) -> Callable[[Diagnosis], None]:
    """Have the engine come to a given conclusion."""
    from neuraldbg.core import engine

    def conclude(diagnosis: Diagnosis) -> None:
        monkeypatch.setattr(engine, "diagnose", lambda *_: diagnosis)

    return conclude


def verdict(level: str) -> Diagnosis:
    """A diagnosis of that verdict."""
    from neuraldbg.core.diagnosis import CausalHypothesis
    from neuraldbg.core.events import EventType, SemanticEvent

    found = () if level == "healthy" else (CausalHypothesis("lr_too_high", 0.9, ("0",)),)
    events = (SemanticEvent("e0", EventType.LOSS, "loss", 2, "improving", "nonfinite"),)
    return Diagnosis(Facts(fact()), level, found, events, headline="It ran.")
