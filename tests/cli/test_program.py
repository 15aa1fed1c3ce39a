"""The program as a whole: what it imports, and how it ends when nobody listens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .programs import OURS, call, environment

PROBE = """
import json, sys
from neuraldbg.cli import main
try:
    code = main({words!r})
except SystemExit as error:
    code = error.code
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


def modules_after(words: list[str], env: dict[str, str]) -> set[str]:
    """The modules that a verb has imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=words)],
        env=environment(env),
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "last"],
        ["explain", "last", "--json"],
        ["show", "last"],
        ["show", "last", "--events"],
        ["list"],
        ["check", "last"],
        ["demo", "--list"],
    ],
    ids=" ".join,
)
def test_verbs_that_do_not_train_never_import_torch(words: list[str], recorded: Path) -> None:
    assert "torch" not in modules_after(words, {"NEURALDBG_DIR": str(recorded.parent)})


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["run", "--help"]], ids=" ".join)
def test_what_needs_no_run_imports_next_to_nothing(words: list[str]) -> None:
    assert not modules_after(words, {}) & {"torch", "numpy", "sqlite3", "importlib.metadata"}


def test_the_probe_would_see_torch() -> None:
    """The test of the two tests above."""
    code = PROBE.format(words=["--version"]).replace("import json, sys", "import json, sys, numpy")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" in json.loads(done.stdout.splitlines()[-1])[1]


def test_the_version_is_that_of_the_package() -> None:
    import neuraldbg

    assert call([*OURS, "--version"], Path.cwd()).out == f"neuraldbg {neuraldbg.__version__}\n"


@pytest.mark.parametrize("words", [["show", "last", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_that_stops_early_is_no_error(words: list[str], recorded: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{' '.join([*OURS, *words])} | true; echo ${{PIPESTATUS}}"],
        env=environment({"NEURALDBG_DIR": str(recorded.parent)}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_a_full_pipe_is_no_error_either(recorded: Path) -> None:
    process = subprocess.Popen(
        [*OURS, "show", "last", "--json"],
        env=environment({"NEURALDBG_DIR": str(recorded.parent)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_terminal_without_unicode_gets_escapes(recorded: Path) -> None:
    words = [*OURS, "show", "last", "--module", "h\u00e9"]
    ended = call(
        words,
        Path.cwd(),
        {
            "NEURALDBG_DIR": str(recorded.parent),
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "ascii:strict",
            "LC_ALL": "C.UTF-8",
        },
    )
    assert ended.code == 2
    assert "no module or parameter" in ended.notices
