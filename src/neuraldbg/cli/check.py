"""`neuraldbg check`: a verdict as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from neuraldbg.cli import output, runs, terminal
from neuraldbg.cli.explain import render
from neuraldbg.cli.parsing import Parser
from neuraldbg.errors import UsageError

LEVELS: Final = ("healthy", "suspect", "failed")

_MORE: Final = """\
Exit 0 if the verdict is below the level, 1 if it is at or above it, 2 if nothing could
be checked: no such run, a damaged file, or a run in which no training was seen.
"""


def main(words: Sequence[str]) -> int:
    """Print the verdict; exit by it."""
    parser = Parser("check", _MORE)
    parser.takes_run()
    parser.add_argument(
        "--fail-on",
        metavar="LEVEL",
        choices=LEVELS[1:],
        default="failed",
        help="failed (the default), or suspect for both",
    )
    parser.takes_json()
    options = parser.parse_args(words)
    opened = runs.diagnose(options.run)
    if opened.empty:
        msg = f"no training step is recorded in {str(opened.path)!r}: there is nothing to check"
        raise UsageError(msg)
    if options.json:
        output.result(render(opened, options.run, as_json=True))
    else:
        terminal.result(_line(opened))
    return int(LEVELS.index(opened.diagnosis.verdict) >= LEVELS.index(options.fail_on))


def _line(opened: runs.Opened) -> str:
    from neuraldbg.report import words

    lines = [words.headline(opened.diagnosis)]
    for found in opened.diagnosis.hypotheses:
        lines.append(f"  {words.confidence(found.confidence)}: {words.cause(found)}")
    return "\n".join(lines) + "\n"
