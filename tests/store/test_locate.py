"""Where runs are, and which one is meant."""

from __future__ import annotations

import os
import random
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.core.facts import RunFact
from neuraldbg.errors import RunFileError
from neuraldbg.store.locate import RunSummary, list_runs, new_run_id, resolve, runs_dir
from neuraldbg.store.writer import RunWriter

NOON = datetime(2026, 12, 2, 10, 15, 30, tzinfo=UTC)
OLD, MIDDLE, NEW = "20251202-101530-a-0000", "20261202-101530-b-0000", "20261202-101531-a-0000"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with three runs, whose files have misleading times."""
    folder = tmp_path / "runs"
    for i, name in enumerate([MIDDLE, NEW, OLD]):
        RunWriter(folder / f"{name}.ndbg", RunFact(id=name, started=name[:8], steps=i)).close()
        os.utime(folder / f"{name}.ndbg", (i, i))
    (folder / "notes.txt").write_text("not a run")
    return {"NEURALDBG_DIR": str(folder)}


def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_dir({}) == runs_dir({"NEURALDBG_DIR": ""}) == tmp_path / ".neuraldbg"
    assert runs_dir({"NEURALDBG_DIR": "~/x"}) == tmp_path / "x"
    monkeypatch.setenv("NEURALDBG_DIR", "/elsewhere")
    assert runs_dir() == Path("/elsewhere")


def test_an_id_says_when_and_what() -> None:
    assert re.fullmatch(r"20261202-101530-train-[0-9a-f]{4}", new_run_id("/x/train.py", NOON))
    assert re.fullmatch(r"20261202-101530-run-[0-9a-f]{4}", new_run_id("日本.py", NOON))


@settings(deadline=None)
@given(st.text())
def test_an_id_is_safe_for_any_script(name: str) -> None:
    made = new_run_id(name, NOON)
    assert re.fullmatch(r"20261202-101530-\w[\w-]*-[0-9a-f]{4}", made, re.ASCII)
    assert len(made) <= 60


def test_an_id_leaves_the_random_numbers_of_the_training_alone() -> None:
    state = random.getstate()
    assert len({new_run_id("train.py", NOON) for _ in range(20)}) > 15
    assert random.getstate() == state


@pytest.mark.parametrize("how", ["{id}", "{id}.ndbg", "{folder}/{id}.ndbg"])
def test_a_run_is_found(env: dict[str, str], how: str) -> None:
    folder = env["NEURALDBG_DIR"]
    found = resolve(how.format(id=MIDDLE, folder=folder), env)
    assert found == Path(folder) / f"{MIDDLE}.ndbg"


def test_last_is_the_newest_by_id(env: dict[str, str]) -> None:
    assert resolve("last", env).stem == NEW


def test_a_run_with_a_name_of_its_own_is_as_new_as_its_file(env: dict[str, str]) -> None:
    path = Path(env["NEURALDBG_DIR"]) / "mine.ndbg"
    RunWriter(path, RunFact(id="mine")).close()
    os.utime(path, (0, datetime(2027, 1, 1, tzinfo=UTC).timestamp()))
    assert resolve("last", env) == path
    os.utime(path, (0, 0))
    assert resolve("last", env).stem == NEW


def test_a_path_need_not_have_the_suffix(tmp_path: Path, env: dict[str, str]) -> None:
    path = tmp_path / "odd.db"
    path.touch()
    assert resolve(str(path), env) == path


def test_an_unknown_run_names_the_nearest(env: dict[str, str]) -> None:
    with pytest.raises(RunFileError, match=rf"No run '20261202-101530-b-000x'.*of 3 .*: {MIDDLE}"):
        resolve("20261202-101530-b-000x", env)
    with pytest.raises(RunFileError, match="nearest of 3"):
        resolve("zzz", env)


@pytest.mark.parametrize("run", ["last", "x", "../runs/x"])
def test_no_runs_at_all(tmp_path: Path, run: str) -> None:
    with pytest.raises(RunFileError, match=r"no runs in .*none; `neuraldbg run script\.py`"):
        resolve(run, {"NEURALDBG_DIR": str(tmp_path / "none")})


def test_an_id_never_leads_out_of_the_folder(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "secret.ndbg").touch()
    with pytest.raises(RunFileError, match="No run"):
        resolve("../secret", env)


def test_a_list_has_the_newest_first_and_the_damaged_too(
    env: dict[str, str], finished: Path
) -> None:
    folder = finished.parent
    (folder / "19990101-000000-bad-0000.ndbg").write_text("junk")
    (folder / f"{OLD}.ndbg").touch()
    runs = list_runs(folder)
    names = [run.id for run in runs if run.id != "r1"]
    assert names == [NEW, MIDDLE, OLD, "19990101-000000-bad-0000"]
    by_id = {run.id: run for run in runs}
    assert by_id["r1"] == RunSummary(
        id="r1",
        path=finished,
        started="2026-12-02T10:15:30",
        steps=50,  # stored, though the facts of the run were not written since its start
        size=finished.stat().st_size,
        verdict="failed",
        cause="lr_too_high",
    )
    assert by_id[NEW].steps == 1
    assert by_id[NEW].verdict is by_id[NEW].cause is by_id[NEW].error is None
    assert "not a NeuralDBG run file" in (by_id["19990101-000000-bad-0000"].error or "")
    assert by_id["19990101-000000-bad-0000"].size == 4


@pytest.mark.parametrize(
    ("diagnosis", "expected"),
    [
        ('{"verdict": "healthy", "hypotheses": []}', ("healthy", None)),
        ('{"verdict": "failed", "hypotheses": [{"cause": 3}]}', ("failed", None)),
        ('{"verdict": 3}', (None, None)),
        ("{}", (None, None)),
    ],
)
def test_what_the_diagnosis_says(
    path: Path, fact: RunFact, diagnosis: str, expected: tuple[str | None, str | None]
) -> None:
    writer = RunWriter(path, fact)
    writer.diagnosis(diagnosis)
    writer.close()
    (summary,) = list_runs(path.parent)
    assert (summary.verdict, summary.cause) == expected


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "none") == []
    (tmp_path / "file").touch()
    assert list_runs(tmp_path / "file") == []
