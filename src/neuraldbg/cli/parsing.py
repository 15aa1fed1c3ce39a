"""Parsing of a verb's words: argparse, with errors that are ours to print."""

from __future__ import annotations

import argparse
from typing import NoReturn

from neuraldbg.errors import UsageError

RUN_HELP = "path of a run file, an id from `neuraldbg list`, or `last`"


class Parser(argparse.ArgumentParser):
    """A parser for one verb that raises instead of leaving the process.

    Args:
        verb: The verb's name.
        does: What it does.
    """

    def __init__(self, verb: str, does: str, usage: str | None = None) -> None:
        super().__init__(
            prog=f"neuraldbg {verb}",
            description=does,
            usage=usage,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._verb = verb

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the words, and where to read more."""
        msg = f"{message}; `neuraldbg {self._verb} --help` shows the options"
        raise UsageError(msg)

    def takes_run(self) -> None:
        """Add the argument that names a run."""
        self.add_argument("run", metavar="RUN", help=RUN_HELP)

    def takes_json(self) -> None:
        """Add `--json` of a reading verb."""
        self.add_argument("--json", action="store_true", help="print JSON instead of text")
