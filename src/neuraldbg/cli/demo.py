"""`neuraldbg demo`: a small model, trained with a known fault, and what we make of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from neuraldbg.cli import output, runs
from neuraldbg.cli.explain import render
from neuraldbg.cli.parsing import Parser
from neuraldbg.cli.table import table
from neuraldbg.errors import NeuralDbgError, UsageError

SCRIPT: Final = "char_gpt.py"
SECONDS: Final = 120  # for the experiment; each trial compiles the model again
BACKENDS: Final = ("inductor", "aot_eager", "eager")
# Compiles in seconds, so that training and experiment together stay under two minutes on two
# cores: 89 s, against 172 s with inductor and empty caches.
BACKEND: Final = "aot_eager"

_MORE: Final = """\
Trains a small character-level GPT on the CPU with a fault built in, under `neuraldbg
run`, prints the explanation, and tests the cause by experiment. The training knows
nothing of NeuralDBG.
"""


def main(words: Sequence[str]) -> int:
    """Train, explain, and say how to go on."""
    parser = Parser("demo", _MORE)
    parser.add_argument("--fault", metavar="NAME", help="which fault to build in")
    parser.add_argument(
        "--backend", choices=BACKENDS, default=BACKEND, help=f"how to compile (default: {BACKEND})"
    )
    parser.add_argument("--no-verify", action="store_true", help="leave out the experiment")
    parser.add_argument("--list", action="store_true", help="list the faults")
    options = parser.parse_args(words)
    script = _script()
    faults = declared_faults(script)
    if options.list:
        output.result(table(list(faults.items())))
        return 0
    fault = options.fault or next(name for name in faults if name != "none")
    if fault not in faults:
        msg = f"no fault is named {fault!r}; there are: {', '.join(faults)}"
        raise UsageError(msg)
    path = _train(script, fault, options.backend)
    if not options.no_verify:
        _test(path)
    _show(script, fault, path)
    return 0


def _train(script: Path, fault: str, backend: str) -> Path:
    """Train under observation; the run file."""
    path = _new_run(script)
    command = [str(script), "--fault", fault, "--backend", backend]
    output.notice(f"training {script.name} with the fault {fault!r}, backend {backend}")
    ours = [sys.executable, "-m", "neuraldbg", "run", "--quiet", "--out", str(path)]
    # The script's own lines are progress here: the result is the explanation.
    ended = subprocess.run([*ours, *command], check=False, stdout=sys.stderr.fileno())  # noqa: S603
    if not path.exists():
        msg = (
            f"nothing was recorded (the training's exit code is {ended.returncode}); "
            f"`neuraldbg doctor` says what is in the way"
        )
        raise NeuralDbgError(msg)
    return path


def _test(path: Path) -> None:
    """Test the leading cause; the result is kept in the run file, where the report finds it."""
    if not runs.diagnose(str(path)).diagnosis.hypotheses:
        return
    output.notice("testing the cause by experiment")
    words = ["verify", str(path), "--yes", "--seeds", "1", "--budget", str(SECONDS)]
    ours = [sys.executable, "-m", "neuraldbg", *words]
    subprocess.run(ours, check=False, stdout=subprocess.DEVNULL)  # noqa: S603


def _show(script: Path, fault: str, path: Path) -> None:
    output.result(f"\nThe fault built in: {fault}\n\n")
    output.result(render(runs.diagnose(str(path)), path.stem, as_json=False))
    output.result(f"\nThe script: {script}\nNow try:    neuraldbg run your_script.py\n")


def _new_run(script: Path) -> Path:
    from neuraldbg.store.locate import new_run_id, runs_dir
    from neuraldbg.store.schema import SUFFIX

    return runs_dir() / f"{new_run_id(script.name, datetime.now(UTC))}{SUFFIX}"


def _script() -> Path:
    import neuraldbg

    script = Path(neuraldbg.__file__).parent / "demos" / SCRIPT
    if not script.is_file():
        msg = f"the demo script is missing at {str(script)!r}; install NeuralDBG again"
        raise NeuralDbgError(msg)
    return script


def declared_faults(script: Path) -> dict[str, str]:
    """The script's `FAULTS` with what each is, read without running it (it imports torch).

    Raises:
        NeuralDbgError: The script declares none.
    """
    tree = ast.parse(script.read_text(encoding="utf-8"))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        value = getattr(node, "value", None)
        if "FAULTS" in names and value is not None:
            return {str(name): str(does) for name, does in ast.literal_eval(value).items()}
    msg = f"{str(script)!r} declares no FAULTS"
    raise NeuralDbgError(msg)
