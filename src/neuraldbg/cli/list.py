"""`neuraldbg list`: the recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from neuraldbg.cli import output
from neuraldbg.cli.parsing import Parser

if TYPE_CHECKING:
    from neuraldbg.store.locate import RunSummary

_ERROR: Final = 60  # characters of an error; `show` says all of it


def main(words: Sequence[str]) -> int:
    """Print one line for each run, the newest first."""
    from neuraldbg.store.locate import list_runs, runs_dir

    parser = Parser("list", "List the runs in .neuraldbg or $NEURALDBG_DIR, the newest first.")
    parser.takes_json()
    options = parser.parse_args(words)
    found = list_runs()
    if options.json:
        from neuraldbg.report.json import encode

        output.result(encode([_data(run) for run in found]) + "\n")
    elif not found:
        output.notice(f"no runs in {runs_dir()}; record one with `neuraldbg run train.py`")
    else:
        output.result(_table(found))
    return 0


def _table(found: Sequence[RunSummary]) -> str:
    from neuraldbg.cli.table import table

    head = ("ID", "STARTED", "STEPS", "ENDED", "VERDICT", "CAUSE")
    return table([head, *(_row(run) for run in found)], right={2})


def _row(run: RunSummary) -> tuple[str, ...]:
    started = (run.started or "")[:16].replace("T", " ")
    if run.error:
        return run.id, started, "", "", "unreadable", shorten(run.error, _ERROR, placeholder=" ...")
    ended = run.finished or "cut off"
    return run.id, started, str(run.steps), ended, run.verdict or "-", run.cause or "-"


def _data(run: RunSummary) -> dict[str, Any]:
    names = ("id", "path", "started", "finished", "steps", "size", "verdict", "cause", "error")
    return {name: getattr(run, name) for name in names}
