"""The verbs that read: explain, show, list and check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from neuraldbg import report
from neuraldbg.cli import main
from neuraldbg.core.diagnosis import Diagnosis

from .conftest import RUN_ID, verdict

SCHEMA = json.loads(
    (Path(report.__file__).parent / "schema" / "diagnosis.schema.json").read_text(encoding="utf-8")
)
Conclude = Callable[[Diagnosis], None]
Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *words: str) -> str:
    """What a verb prints; it succeeds and has nothing else to say."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("name", ["last", RUN_ID, "path"])
def test_explain_prints_the_report(name: str, recorded: Path, capsys: Captured) -> None:
    out = printed(capsys, "explain", str(recorded) if name == "path" else name)
    assert "3 steps" in out


def test_explain_names_the_run_as_the_user_did(
    recorded: Path, concluded: Conclude, capsys: Captured
) -> None:
    concluded(verdict("failed"))
    out = printed(capsys, "explain", "last")
    assert out.startswith("FAILED: It ran.")
    assert "neuraldbg explain last --json" in out


@pytest.mark.parametrize("verb", ["explain", "check"])
def test_json_of_a_diagnosis_fits_the_schema(verb: str, recorded: Path, capsys: Captured) -> None:
    main([verb, "last", "--json"])
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert data["run"]["id"] == RUN_ID


def test_show_prints_the_facts(recorded: Path, capsys: Captured) -> None:
    out = printed(capsys, "show", "last")
    for said in (RUN_ID, "SGD: 2 parameters, 1 of them of no watched model", "lr=0.1", "mse, mean"):
        assert said in out
    assert "input statistics: the batch is a custom class" in out
    assert "sesame" not in out
    rows = [line.split() for line in out.splitlines()]
    assert ["loss", "value", "3", "2.5", "nan", "1.25", "2.5"] in rows
    assert ["0", "act_rms", "3", "1", "3", "1", "3"] in rows


def test_show_prints_one_module(recorded: Path, capsys: Captured) -> None:
    out = printed(capsys, "show", "last", "--module", "0")
    assert "0: Linear, training=True" in out
    assert "0.weight: [4, 4] float32, optimizer 0" in out
    assert "0.bias: [4] float32, no optimizer" in out
    assert "update_ratio" in out


def test_show_json_holds_facts_and_numbers(recorded: Path, capsys: Captured) -> None:
    data = json.loads(printed(capsys, "show", "last", "--json"))
    assert [m["name"] for m in data["modules"]] == ["", "0", "1"]
    loss = next(s for s in data["series"] if s["metric"] == "value")
    assert (loss["first"], loss["last"], loss["min"], loss["looks"]) == (2.5, "nan", 1.25, 3)
    one = json.loads(printed(capsys, "show", "last", "--json", "--module", "0"))
    assert {s["site"] for s in one["series"]} == {"0", "0.weight"}


def test_show_events(recorded: Path, concluded: Conclude, capsys: Captured) -> None:
    concluded(verdict("failed"))
    out = printed(capsys, "show", "last", "--events")
    assert out.splitlines()[1].split() == ["2", "loss", "loss", "improving", "nonfinite"]
    assert printed(capsys, "show", "last", "--events", "--module", "0") == "No state changed.\n"
    data = json.loads(printed(capsys, "show", "last", "--events", "--json"))
    assert data[0]["from"] == "improving"


def test_list_names_every_run(recorded: Path, untrained: Path, capsys: Captured) -> None:
    lines = printed(capsys, "list").splitlines()
    assert lines[0].split() == ["ID", "STARTED", "STEPS", "ENDED", "VERDICT", "CAUSE"]
    assert RUN_ID in lines[2]
    data = json.loads(printed(capsys, "list", "--json"))
    assert [run["id"] for run in data] == [untrained.stem, recorded.stem]
    assert data[1]["path"] == str(recorded)


def test_list_shows_damaged_files(runs: Path, capsys: Captured) -> None:
    (runs / "broken.ndbg").write_bytes(b"not a run file at all")
    assert "unreadable" in printed(capsys, "list")
    assert json.loads(printed(capsys, "list", "--json"))[0]["error"]


def test_list_of_nothing_says_how_to_begin(runs: Path, capsys: Captured) -> None:
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "neuraldbg run train.py" in err
    assert json.loads(printed(capsys, "list", "--json")) == []


@pytest.mark.parametrize(
    ("level", "fail_on", "code"),
    [
        ("healthy", "suspect", 0),
        ("healthy", "failed", 0),
        ("suspect", "suspect", 1),
        ("suspect", "failed", 0),
        ("failed", "suspect", 1),
        ("failed", "failed", 1),
    ],
)
def test_check_exits_by_the_verdict(
    level: str, fail_on: str, code: int, recorded: Path, concluded: Conclude, capsys: Captured
) -> None:
    concluded(verdict(level))
    assert main(["check", "last", "--fail-on", fail_on]) == code
    assert level.upper() in capsys.readouterr().out
    assert main(["check", "last", "--fail-on", fail_on, "--json"]) == code


def test_a_run_without_training_is_no_green(untrained: Path, capsys: Captured) -> None:
    assert main(["check", "last"]) == 2
    assert "nothing to check" in capsys.readouterr().err


def test_a_failure_of_ours_is_no_finding(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from neuraldbg.core import engine

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "diagnose", fail)
    assert main(["check", "last"]) == 2
    assert "NeuralDBG itself failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a verb"),
        (["lst"], "did you mean 'list'?"),
        (["wat"], "unknown verb 'wat'"),
        (["train.py"], "neuraldbg run train.py"),
        (["explain"], "the following arguments are required: RUN"),
        (["explain", "last"], "No last run"),
        (["explain", "nope"], "No run 'nope'"),
        (["explain", "last", "--wat"], "unrecognized arguments: --wat"),
        (["show"], "the following arguments are required: RUN"),
        (["show", "nope"], "No run 'nope'"),
        (["check", "nope"], "No run 'nope'"),
        (["check", "last", "--fail-on", "healthy"], "invalid choice: 'healthy'"),
        (["list", "more"], "unrecognized arguments: more"),
        (["doctor", "more"], "No run 'more'"),
        (["demo", "--fault", "nope"], "no fault is named 'nope'; there are:"),
        (["demo", "--backend", "nope"], "invalid choice: 'nope'"),
        (["verify", "last"], "No last run"),
        (["verify", "last", "--budget", "-1"], "a number of seconds above 0, not -1"),
        (["verify", "last", "--seeds", "0"], "at least 1, not 0"),
        (["report", "last"], "No last run"),
        (["diff", "a", "b"], "No run 'a'"),
        (["export", "last"], "name a format: --format json|csv"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_words_teach(words: list[str], says: str, runs: Path, capsys: Captured) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("neuraldbg: ")
    assert says in err


def test_an_unknown_module_names_its_neighbours(recorded: Path, capsys: Captured) -> None:
    assert main(["show", "last", "--module", "0.wieght"]) == 2
    assert "near: 0.weight" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["explain", "show", "check"])
def test_a_damaged_file_is_no_crash(verb: str, runs: Path, capsys: Captured) -> None:
    (runs / "broken.ndbg").write_bytes(b"SQLite format 3\x00" + b"\xff" * 300)
    assert main([verb, "broken"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_lists_every_verb(capsys: Captured) -> None:
    from neuraldbg.cli.verbs import VERBS

    out = printed(capsys, "--help")
    for verb in VERBS:
        assert f"\n  {verb} " in out


def test_doctor_says_what_works(runs: Path, capsys: Captured) -> None:
    main(["doctor", "--json"])
    found = {f["what"]: f for f in json.loads(capsys.readouterr().out)}
    assert found["runs"]["ok"] is True
    assert found["NEURALDBG_DIR"]["state"] == str(runs)


def test_doctor_finds_what_is_in_the_way(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("NEURALDBG_DIR", "/dev/null/here")
    monkeypatch.setenv("NEURALDBG_STRICT", "perhaps")
    assert main(["doctor"]) == 1
    assert "NEURALDBG_STRICT is 'perhaps'" in capsys.readouterr().out
    monkeypatch.delenv("NEURALDBG_STRICT")
    assert main(["doctor"]) == 1
    assert "cannot be written" in capsys.readouterr().out


def test_demo_lists_its_faults(capsys: Captured) -> None:
    out = printed(capsys, "demo", "--list")
    assert "lr_too_high" in out
