"""`neuraldbg explain`: diagnose a run file again, with the engine of this version."""

from __future__ import annotations

from collections.abc import Sequence

from neuraldbg.cli import output, runs, terminal
from neuraldbg.cli.parsing import Parser


def main(words: Sequence[str]) -> int:
    """Print the diagnosis of a run."""
    parser = Parser("explain", "Diagnose a run file again; the training is not run again.")
    parser.takes_run()
    parser.takes_json()
    options = parser.parse_args(words)
    opened = runs.diagnose(options.run)
    text = render(opened, options.run, as_json=options.json)
    (output if options.json else terminal).result(text)
    return 0


def render(opened: runs.Opened, run: str, *, as_json: bool) -> str:
    """The diagnosis as JSON, or as text that names the run as the user did."""
    if as_json:
        from neuraldbg.report.json import dumps

        return dumps(opened.diagnosis) + "\n"
    from neuraldbg.report.text import render as as_text

    return as_text(opened.diagnosis, run=run)
