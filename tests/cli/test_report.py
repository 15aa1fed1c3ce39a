"""The verb `report`: a file that stands alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuraldbg.cli import main

from .conftest import RUN_ID
from .programs import OURS, PLAIN, call

Captured = pytest.CaptureFixture[str]


def test_the_report_is_written_where_it_is_asked_for(
    recorded: Path, tmp_path: Path, capsys: Captured
) -> None:
    target = tmp_path / "report.html"
    assert main(["report", "last", "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_a_name_it_is_named_after_the_run(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "last", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"path": f"{RUN_ID}.html", "bytes": Path(f"{RUN_ID}.html").stat().st_size}


def test_two_reports_of_a_run_are_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        ended = call([*OURS, "report", str(recorded), "-o", name], tmp_path)
        assert ended.code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_folder_that_is_not_there_is_named(
    recorded: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["report", "last", "-o", str(tmp_path / "no" / "report.html")]) == 2
    assert "name a file in a folder that exists" in capsys.readouterr().err


def test_no_torch_is_loaded(recorded: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from neuraldbg.cli import main; "
        f"code = main(['report', {str(recorded)!r}, '-o', 'a.html']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert call([*PLAIN, "-c", script], tmp_path).code == 0
