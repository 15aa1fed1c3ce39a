"""`neuraldbg diff`, and `doctor` of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from neuraldbg.cli import main
from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind, ModuleFact, OptimizerFact, ParamFact, RunFact
from neuraldbg.store.writer import RunWriter

Captured = pytest.CaptureFixture[str]


def record(path: Path, *, factor: float = 1.0, rate: float = 0.1, init: float = 1.0) -> str:
    """A run of two layers, the second of which is wrong by a factor from step 2 on."""
    writer = RunWriter(path, RunFact(id=path.stem, command=("train.py",), steps=5, finished="ok"))
    names = ("first", "second")
    writer.modules([ModuleFact(n, "Linear", order=i, calls=1) for i, n in enumerate(names)])
    writer.params([ParamFact(f"{n}.weight", (4, 4), optimizer=0, init_rms=init) for n in names])
    writer.optimizers([OptimizerFact(0, "SGD", ({"lr": rate},), 2, steps=5)])
    metrics = (m.ACT_RMS, m.ACT_ABSMAX, m.GRAD_RMS)
    writer.channels(m.LOOK, [Channel(Kind.MODULE, n, x) for n in names for x in metrics])
    for step in range(5):
        wrong = factor if step >= 2 else 1.0
        writer.frame(m.LOOK, step, np.array([1.0, 2.0, 0.1, 3.0 * wrong, 4.0, 0.2]))
    writer.close()
    return str(path)


def test_runs_that_agree(tmp_path: Path, capsys: Captured) -> None:
    words = ["diff", record(tmp_path / "a.ndbg"), record(tmp_path / "b.ndbg")]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "agree within the rounding of float32 on the 5 steps" in out
    assert "Settings" not in out
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["comparable"], data["first"], data["steps_compared"]) == (True, None, 5)


def test_runs_that_part(tmp_path: Path, capsys: Captured) -> None:
    words = ["diff", record(tmp_path / "a.ndbg"), record(tmp_path / "b.ndbg", factor=1.5, rate=0.2)]
    assert main(words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "They part at step 2, in the output of second: act_rms is 3 in A and 4.5 in B" in out
    assert "optimizer 0, group 0, lr: 0.1 in A, 0.2 in B" in out
    assert main([*words, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["first"]["where"], data["first"]["step"]) == ("second", 2)
    assert data["settings"]["optimizer 0, group 0, lr"] == [0.1, 0.2]


def test_runs_from_other_weights_cannot_be_compared(tmp_path: Path, capsys: Captured) -> None:
    words = ["diff", record(tmp_path / "a.ndbg"), record(tmp_path / "b.ndbg", init=2.0)]
    assert main(words) == 2
    assert "start from different weights (first.weight)" in capsys.readouterr().out


def test_bad_words_teach(tmp_path: Path, capsys: Captured) -> None:
    assert main(["diff", record(tmp_path / "a.ndbg")]) == 2
    assert "RUN_B" in capsys.readouterr().err
    assert main(["doctor", "train.py"]) == 2
    assert "neuraldbg run train.py" in capsys.readouterr().err


def test_the_doctor_says_what_was_seen_of_a_run(tmp_path: Path, capsys: Captured) -> None:
    run = record(tmp_path / "a.ndbg")
    assert main(["doctor", run]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Of 2 modules, outputs were read of 2 and gradients of 2" in out
    assert main(["doctor", run, "--json"]) == 0
    assert all(x["output"] for x in json.loads(capsys.readouterr().out)["modules"])


def test_a_trained_module_that_was_never_seen_is_in_the_way(
    recorded: Path, tmp_path: Path, capsys: Captured
) -> None:
    copy = shutil.copy(recorded, tmp_path / "b.ndbg")
    writer = RunWriter(tmp_path / "c.ndbg", RunFact(id="c", steps=3))
    writer.modules([ModuleFact("lost", "Linear")])
    writer.params([ParamFact("lost.weight", (4, 4), optimizer=0)])
    writer.close()
    assert main(["doctor", str(copy)]) == 0
    assert "never called" not in capsys.readouterr().out.split("Of 3")[0]
    assert main(["doctor", str(tmp_path / "c.ndbg")]) == 1
    assert "lost: never called in a training step" in capsys.readouterr().out


def test_what_works_is_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: Path, capsys: Captured
) -> None:
    from neuraldbg.cli import doctor

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    outcomes = iter([{"taps": True}, {"taps": "RuntimeError: they are gone"}])
    monkeypatch.setattr(doctor, "_mechanisms", lambda: next(outcomes))
    assert main(["doctor"]) == 0
    assert main(["doctor"]) == 0
    assert "tried before" in capsys.readouterr().out
    assert main(["doctor", "--fresh"]) == 1
    assert "does not work: RuntimeError: they are gone" in capsys.readouterr().out
