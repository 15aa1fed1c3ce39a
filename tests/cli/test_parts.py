"""Small parts: waiting for an import, signs of life, tables, settings."""

from __future__ import annotations

import doctest
import importlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from neuraldbg import config
from neuraldbg.cli import run, table
from neuraldbg.cli.arrival import upon
from neuraldbg.cli.output import Notices
from neuraldbg.cli.progress import EVERY, FIRST, Progress
from neuraldbg.config import Config
from neuraldbg.errors import UsageError


@pytest.mark.parametrize("module", [config, run, table], ids=lambda m: str(m.__name__))
def test_the_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that is not imported yet."""
    (tmp_path / "arrives_late.py").write_text("HERE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "arrives_late", raising=False)
    return "arrives_late"


def test_an_import_is_noticed_once_and_leaves_no_trace(late: str) -> None:
    finders = list(sys.meta_path)
    seen: list[bool] = []
    upon(late, lambda: seen.append(sys.modules[late].HERE))
    assert seen == []
    module = importlib.import_module(late)
    importlib.reload(module)
    assert seen == [True]
    assert sys.meta_path == finders
    assert module.__spec__ is not None
    assert "exec_module" not in vars(module.__spec__.loader)


def test_a_look_at_the_spec_is_no_import(late: str) -> None:
    from importlib.util import find_spec

    seen: list[bool] = []
    upon(late, lambda: seen.append(True))
    assert find_spec(late) is not None
    assert seen == []
    importlib.import_module(late)
    assert seen == [True]


def test_a_module_that_is_there_is_noticed_at_once() -> None:
    seen: list[bool] = []
    upon("sys", lambda: seen.append(True))
    assert seen == [True]


def test_a_module_that_is_missing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    upon("there_is_no_such_module", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("there_is_no_such_module")


def test_signs_of_life_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tqdm", raising=False)  # torch may have imported it
    now = [0.0]
    stream = io.StringIO()
    progress = Progress(Notices(stream), lambda: now[0])
    for second in range(int(FIRST + 2 * EVERY) + 1):
        now[0] = float(second)
        progress(f"step {second}")
    assert len(stream.getvalue().splitlines()) == 3


def test_signs_of_life_go_between_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    bars = SimpleNamespace(tqdm=SimpleNamespace(write=lambda text, file: written.append(text)))
    monkeypatch.setitem(sys.modules, "tqdm", bars)
    stream = io.StringIO()
    now = iter([0.0, FIRST + 1])
    Progress(Notices(stream), lambda: next(now))("step 3")
    assert written == ["neuraldbg: step 3"]
    assert stream.getvalue() == ""


def test_a_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    stream.close()
    notices = Notices(stream)
    notices.say("nobody hears")
    assert not notices.terminal


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Config()),
        ({"NEURALDBG_MODE": "OFF", "NEURALDBG_STRICT": "1"}, Config(off=True, strict=True)),
        ({"NEURALDBG_MODE": "", "NEURALDBG_DIR": ""}, Config()),
        ({"NEURALDBG_DIR": "/x"}, Config(directory=Path("/x"))),
    ],
)
def test_settings_from_the_environment(env: dict[str, str], expected: Config) -> None:
    assert Config.from_env(env) == expected


def test_arguments_win_over_the_environment() -> None:
    env = {"NEURALDBG_STRICT": "on", "NEURALDBG_DIR": "/x"}
    config = Config.from_env(env, strict=False, directory=Path("/y"), budget=0.1)
    assert config == Config(strict=False, directory=Path("/y"), budget=0.1)


def test_a_setting_that_means_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="NEURALDBG_STRICT is 'perhaps'"):
        Config.from_env({"NEURALDBG_STRICT": "perhaps"})
