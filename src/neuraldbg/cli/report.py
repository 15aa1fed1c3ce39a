"""`neuraldbg report`: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuraldbg.cli import output, places, runs
from neuraldbg.cli.parsing import Parser
from neuraldbg.errors import UsageError


def main(words: Sequence[str]) -> int:
    """Write the report, and say where it is."""
    parser = Parser("report", "Write one HTML file that needs nothing else and asks nobody.")
    parser.takes_run()
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (default: RUN.html here)")
    parser.takes_json()
    options = parser.parse_args(words)
    opened = runs.diagnose(options.run)
    target = Path(options.output or f"{opened.path.stem}.html")
    from neuraldbg.report.html import render

    page = render(opened.record, opened.diagnosis, options.run)
    save(target, page.encode("utf-8"))
    if options.json:
        from neuraldbg.report.json import encode

        output.result(encode({"path": str(target), "bytes": len(page.encode("utf-8"))}) + "\n")
    else:
        output.result(f"{target}\n")
    return 0


def save(target: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageError: It cannot be written there.
    """
    try:
        places.write(target, content)
    except OSError as error:
        msg = (
            f"cannot write {str(target)!r} ({error.strerror}); name a file in a folder that exists"
        )
        raise UsageError(msg) from error
