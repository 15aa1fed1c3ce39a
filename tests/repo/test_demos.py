"""The demos learn when nothing is wrong, and fail when something is."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from neuraldbg.core.causes import all_causes
from neuraldbg.demos import char_gpt, digits_cnn

ROOT = Path(__file__).parents[2]
DEMOS = (char_gpt, digits_cnn)
SCRIPTS = [*(Path(str(demo.__file__)) for demo in DEMOS), *sorted(ROOT.glob("examples/*.py"))]


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def result(capsys: pytest.CaptureFixture[str], name: str, *words: str) -> str:
    importlib.import_module(f"neuraldbg.demos.{name}").main(list(words))
    last = capsys.readouterr().out.splitlines()[-1]
    found = re.match(r"result: (learned|did not learn), ", last)
    assert found is not None, last
    return found[1]


@pytest.mark.parametrize("fault", digits_cnn.FAULTS)
def test_digits(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = "learned" if fault == "none" else "did not learn"
    assert result(capsys, "digits_cnn", "--fault", fault) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", digits_cnn.FAULTS)
def test_digits_with_other_seeds(fault: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = "learned" if fault == "none" else "did not learn"
    assert result(capsys, "digits_cnn", "--fault", fault, "--seed", str(seed)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("fault", char_gpt.FAULTS)
def test_gpt(fault: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = "learned" if fault == "none" else "did not learn"
    words = ("--backend", "eager", "--fault", fault, "--seed", str(seed))
    assert result(capsys, "char_gpt", *words) == expected


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.parametrize("fault", ["none", "lr_too_high"])
def test_gpt_as_the_demo_runs_it(fault: str) -> None:
    script = Path(str(char_gpt.__file__))
    words = [sys.executable, str(script), "--fault", fault]
    ended = subprocess.run(words, capture_output=True, check=True, text=True)
    expected = "learned" if fault == "none" else "did not learn"
    assert ended.stdout.splitlines()[-1].startswith(f"result: {expected}, ")


@pytest.mark.parametrize("fault", char_gpt.FAULTS)
def test_every_fault_of_the_gpt_takes_a_step(
    fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--backend", "eager", "--fault", fault, "--steps", "2")
    assert result(capsys, "char_gpt", *words) == "did not learn"


def test_the_same_seed_gives_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for _ in range(2):
        digits_cnn.main(["--steps", "30"])
        lines.append([line for line in capsys.readouterr().out.splitlines() if "step " in line])
    assert lines[0] == lines[1] != []


@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.__name__.rpartition(".")[2])
def test_help_lists_every_fault(demo: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])  # type: ignore[attr-defined]
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    for fault, text in demo.FAULTS.items():  # type: ignore[attr-defined]
        assert re.search(rf"^  {fault} +{re.escape(text)}$", shown, flags=re.MULTILINE)


@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.__name__.rpartition(".")[2])
def test_every_fault_is_the_id_of_a_cause(demo: object) -> None:
    faults = set(demo.FAULTS)  # type: ignore[attr-defined]
    assert faults - set(all_causes()) == {"none"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_and_says_what_it_is(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.__name__.rpartition(".")[2])
def test_a_demo_knows_nothing_of_us(demo: object) -> None:
    tree = ast.parse(Path(str(demo.__file__)).read_text(encoding="utf-8"))  # type: ignore[attr-defined]
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert names
    assert not [name for name in names if name.startswith("neuraldbg")]
