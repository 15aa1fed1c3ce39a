"""Failures of ours, whatever they are, leave the script alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from neuraldbg.cli.observe import Observation, Wishes
from neuraldbg.cli.output import Notices
from neuraldbg.core.diagnosis import Diagnosis

from .conftest import RUN_ID, verdict


class Session:
    """A session that ends as it is told to."""

    def __init__(self, path: Path, outcome: Diagnosis | BaseException | None) -> None:
        self.path = path
        self.outcome = outcome
        self.told: list[object] = []

    def finish(self, finished: str, exception: BaseException | None) -> Diagnosis | None:
        self.told.append((finished, exception))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def spoke(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A torch spoke made of nothing; torch counts as imported."""
    fake = ModuleType("neuraldbg.torch.attach")
    package = ModuleType("neuraldbg.torch")
    package.attach = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "neuraldbg.torch", package)
    monkeypatch.setitem(sys.modules, "neuraldbg.torch.attach", fake)
    if "torch" not in sys.modules:
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    return fake


def observe(
    spoke: ModuleType,
    outcome: Diagnosis | BaseException | None,
    tmp_path: Path,
    runs: Path,
    *,
    quiet: bool = False,
) -> Session:
    """Observe a script that ends well."""
    session = Session(runs / f"{RUN_ID}.ndbg", outcome)
    spoke.start = lambda **_: session  # type: ignore[attr-defined]
    wishes = Wishes(json=tmp_path / "d.json", quiet=quiet)
    observed = Observation(["train.py"], wishes, Notices())
    observed.start()
    observed.finish("ok", None)
    observed.finish("exception", None)
    return session


def test_it_finishes_once(spoke: ModuleType, tmp_path: Path, runs: Path) -> None:
    assert observe(spoke, verdict("failed"), tmp_path, runs).told == [("ok", None)]


def test_the_report_goes_to_stderr(
    spoke: ModuleType, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observe(spoke, verdict("failed"), tmp_path, runs)
    out, err = capsys.readouterr()
    assert out == ""
    assert "FAILED: It ran." in err
    assert f"neuraldbg show {RUN_ID} --events" in err


@pytest.mark.parametrize(("level", "lines"), [("healthy", 0), ("suspect", 1), ("failed", 1)])
def test_quiet_is_one_line_and_only_of_a_fault(
    level: str,
    lines: int,
    spoke: ModuleType,
    tmp_path: Path,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    observe(spoke, verdict(level), tmp_path, runs, quiet=True)
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize(
    ("outcome", "what", "why"),
    [
        (None, "training", "no optimizer step was seen"),
        (ZeroDivisionError("engine"), "diagnosis", "ZeroDivisionError: engine"),
        (KeyboardInterrupt(), "diagnosis", "KeyboardInterrupt"),
        (MemoryError(), "diagnosis", "MemoryError"),
    ],
)
def test_what_goes_wrong_is_a_gap(
    outcome: BaseException | None,
    what: str,
    why: str,
    spoke: ModuleType,
    tmp_path: Path,
    runs: Path,
) -> None:
    observe(spoke, outcome, tmp_path, runs)
    data = json.loads((tmp_path / "d.json").read_text())
    assert data["verdict"] == "healthy"
    (gap,) = data["gaps"]
    assert gap["what"] == what
    assert why in gap["why"]


def test_a_diagnosis_that_has_no_json_is_a_gap(
    spoke: ModuleType, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuraldbg.report import json as as_json

    right = as_json.dumps
    calls: list[Diagnosis] = []

    def dumps(diagnosis: Diagnosis) -> str:
        calls.append(diagnosis)
        if len(calls) == 1:
            raise TypeError("odd")  # noqa: EM101
        return right(diagnosis)

    monkeypatch.setattr(as_json, "dumps", dumps)
    observe(spoke, verdict("failed"), tmp_path, runs)
    assert "odd" in json.loads((tmp_path / "d.json").read_text())["gaps"][0]["why"]


def test_a_start_that_fails_is_a_gap(
    spoke: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(**_: object) -> None:
        raise OSError("no room")  # noqa: EM101, TRY003

    spoke.start = start  # type: ignore[attr-defined]
    observed = Observation(["train.py"], Wishes(json=tmp_path / "d.json"), Notices())
    observed.start()
    observed.finish("ok", None)
    (gap,) = json.loads((tmp_path / "d.json").read_text())["gaps"]
    assert gap == {"what": "observation", "why": "NeuralDBG failed: OSError: no room"}
    assert capsys.readouterr().err.count("warning") == 1


def test_strictness_raises_what_goes_wrong_at_the_start(spoke: ModuleType) -> None:
    def start(**_: object) -> None:
        raise OSError("no room")  # noqa: EM101, TRY003

    spoke.start = start  # type: ignore[attr-defined]
    observed = Observation(["train.py"], Wishes(strict=True), Notices())
    with pytest.raises(OSError, match="no room"):
        observed.start()


def test_the_script_gets_its_own_import_path_back(
    spoke: ModuleType, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/theirs", *sys.path])
    before = list(sys.path)
    observe(spoke, verdict("failed"), tmp_path, runs)
    assert sys.path == before


def test_a_script_that_has_left_its_folder_leaves_its_run_there(
    spoke: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path | None] = []
    spoke.start = lambda **told: given.append(told["out"])  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURALDBG_DIR", "runs")
    observed = Observation(["-m", "train"], Wishes(), Notices())
    observed.start()
    assert given == [None]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    observed.start()
    assert given[1] is not None
    assert given[1].parent == tmp_path / "runs"
    assert "-train-" in given[1].name
