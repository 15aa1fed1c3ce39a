"""`neuraldbg run`: its options, its files, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from neuraldbg import report
from neuraldbg.cli.run import plan, split
from neuraldbg.errors import UsageError

from .programs import PLAIN, RUN, call

SCHEMA = json.loads(
    (Path(report.__file__).parent / "schema" / "diagnosis.schema.json").read_text(encoding="utf-8")
)


def written(path: Path) -> dict[str, object]:
    """The diagnosis in a file, seen to fit the schema."""
    data: dict[str, object] = json.loads(path.read_text())
    jsonschema.validate(data, SCHEMA)
    return data


@pytest.mark.parametrize(
    ("ending", "finished", "code"),
    [
        ("pass", "ok", 0),
        ("raise SystemExit(0)", "ok", 0),
        ("raise SystemExit(3)", "exception", 3),
        ("1 / 0", "exception", 1),
        ("def", "exception", 1),
        ("raise KeyboardInterrupt", "interrupted", -2),
    ],
)
def test_the_diagnosis_is_written_however_the_script_ends(
    ending: str, finished: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(f"import os\nos.chdir('/')\n{ending}\n")
    ended = call([*RUN, "--json", "d.json", "train.py", "--fast"], tmp_path)
    assert ended.code == code
    data = written(tmp_path / "d.json")
    assert data["verdict"] == "healthy"
    assert data["gaps"] == [{"what": "training", "why": "torch was not imported"}]
    run = data["run"]
    assert isinstance(run, dict)
    assert run["finished"] == finished
    assert run["command"] == ["train.py", "--fast"]
    assert "NOTHING SEEN" in ended.notices


def test_quiet_says_nothing_of_a_run_without_a_fault(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    assert call([*RUN, "--quiet", "train.py"], tmp_path).notices == ""


def test_every_rank_has_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    ended = call([*RUN, "--json", "d.json", "train.py"], tmp_path, {"RANK": "3"})
    written(tmp_path / "d.rank3.json")
    assert ended.notices == ""


def test_a_diagnosis_that_cannot_be_written_does_not_hurt_the_script(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text("import os; os.rmdir('out'); print('fine')")
    ended = call([*RUN, "--json", "out/d.json", "train.py"], tmp_path)
    assert (ended.code, ended.out) == (0, "fine\n")
    assert "warning: JSON file" in ended.notices


@pytest.mark.parametrize("missing", ["nope.py", "no/where.py"])
def test_a_missing_script_is_as_with_plain_python(missing: str, tmp_path: Path) -> None:
    plain, ours = call([*PLAIN, missing], tmp_path), call([*RUN, missing], tmp_path)
    assert ours.code == plain.code == 2
    assert plain.err.partition(": ")[2].strip() in ours.notices


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no script is named"),
        (["--quiet"], "no script is named"),
        (["-m"], "-m needs the name of a module"),
        (["--budget", "-1", "train.py"], "0 or more"),
        (["--budget", "nan", "train.py"], "0 or more"),
        (["--budget", "3", "train.py"], "three per cent are 0.03"),
        (["--budget", "much", "train.py"], "invalid float value: 'much'"),
        (["--wat", "train.py"], "unrecognized arguments: --wat"),
        (["--json", "train.py"], "no script is named"),
        (["--json", "train.py", "train.py"], "--json needs a file"),
        (["--json", "-", "train.py"], "--json needs a file"),
        (["--json", "no/where.json", "train.py"], "name a file in a folder that exists"),
        (["--json", "folder", "train.py"], "name a file in a folder that exists"),
        (["--out", "train.py", "train.py"], "is no run file"),
        (["--out", "folder", "train.py"], "is not a file"),
        (["-c", "print(1)"], "unrecognized arguments: -c"),
        (["-", "x"], "cannot be read from standard input"),
    ],
)
def test_bad_words_teach(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError) as caught:
        plan(words)
    assert says in str(caught.value)


def test_bad_settings_stop_before_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')")
    ended = call([*RUN, "train.py"], tmp_path, {"NEURALDBG_MODE": "maybe"})
    assert (ended.code, ended.out) == (2, "")
    assert "NEURALDBG_MODE is 'maybe'; use 'on' or 'off'" in ended.notices


@pytest.mark.parametrize(
    ("words", "ours", "name", "args", "module"),
    [
        (["a.py"], [], "a.py", (), False),
        (["--quiet", "a.py", "--quiet"], ["--quiet"], "a.py", ("--quiet",), False),
        (["--json", "x", "-m", "a.b", "c"], ["--json", "x"], "a.b", ("c",), True),
        (["--json=x", "-ma.b"], ["--json=x"], "a.b", (), True),
        (["--", "a.py", "--"], [], "a.py", ("--",), False),
    ],
)
def test_our_words_and_theirs(
    words: list[str], ours: list[str], name: str, args: tuple[str, ...], module: bool
) -> None:
    found, target = split(words)
    assert target is not None
    assert (found, target.name, target.args, target.module) == (ours, name, args, module)


def test_help_says_where_the_report_goes(tmp_path: Path) -> None:
    ended = call([*RUN, "--help"], tmp_path)
    assert ended.code == 0
    assert "the report goes to stderr" in ended.out
