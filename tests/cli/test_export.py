"""The verb `export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuraldbg.cli import main
from neuraldbg.cli.export import FORMATS

from .programs import OURS, call

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_written(name: str, recorded: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert main(["export", "last", "--format", name, "-o", str(target)]) == 0
    assert target.stat().st_size > 20


def test_every_picture_goes_into_a_folder(recorded: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["export", "last", "--format", "svg", "-o", str(tmp_path)]) == 0
    assert {"loss.svg", "gradient.svg", "update.svg"} <= {p.name for p in tmp_path.iterdir()}


def test_json_is_everything(recorded: Path, capsys: Captured) -> None:
    assert main(["export", "last", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    loss = next(r for r in data["readings"] if r["metric"] == "value")
    assert loss["values"] == [2.5, 1.25, "nan"]
    assert data["diagnosis"]["schema_version"] == 1


def test_binary_formats_go_through_a_pipe(recorded: Path, tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; "
        f"ended = subprocess.run([{OURS[0]!r}, '-m', 'neuraldbg', 'export', {str(recorded)!r}, "
        "'--format', 'png'], stdout=subprocess.PIPE); "
        "sys.exit(not ended.stdout.startswith(b'\\x89PNG'))"
    )
    assert call([OURS[0], "-c", script], tmp_path).code == 0


def test_what_cannot_be_done_is_said(recorded: Path, capsys: Captured) -> None:
    assert main(["export", "last"]) == 2
    assert "--format json|csv" in capsys.readouterr().err
    assert main(["export", "last", "--format", "svg", "--picture", "moon"]) == 2
    assert "there are: " in capsys.readouterr().err


def test_sarif_points_into_the_script(recorded: Path, tmp_path: Path) -> None:
    from neuraldbg.cli import runs
    from neuraldbg.cli.export import _locator
    from neuraldbg.core.facts import Facts, RunFact
    from neuraldbg.core.record import Record

    (tmp_path / "train.py").write_text("loss.backward()\n")
    opened = runs.diagnose("last")
    run = RunFact("x", ("train.py",), cwd=str(tmp_path))
    there = runs.Opened(opened.path, Record(Facts(run)), opened.diagnosis)
    assert _locator(there)(()) == ("train.py", 1)
    assert _locator(opened)(()) is None
