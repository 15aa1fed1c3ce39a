"""From the first word to its verb, and from what goes wrong to an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from neuraldbg import __version__
from neuraldbg.cli import output
from neuraldbg.cli.verbs import HELP, VERBS, unknown
from neuraldbg.errors import NeuralDbgError

USAGE = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Args:
        argv: The words after the program's name; those of the process by default.

    Returns:
        The exit code. `run` lets the script's own exception, e.g. `SystemExit`, go on.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    first = words[0] if words else ""
    if first == "run":
        return _run(words[1:])
    if first in ("-h", "--help", "help"):
        output.result(HELP)
    elif first in ("-V", "--version"):
        output.result(f"neuraldbg {__version__}\n")
    elif first in VERBS:
        return output.finish(_verb(first, words[1:]))
    else:
        output.notice(unknown(first) if first else "name a verb; `neuraldbg --help` lists them")
        return USAGE
    return output.finish(0)


def _verb(name: str, words: list[str]) -> int:
    """Any verb but `run`: a failure of ours is never mistaken for a finding."""
    try:
        return int(import_module(f"neuraldbg.cli.{name}").main(words))
    except NeuralDbgError as error:
        output.notice(f"{name}: {error}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # whatever it is, it is not a finding
        output.fault(f"{name}: NeuralDBG itself failed; please report this", error)
    return USAGE


def _run(words: list[str]) -> int:
    """`run`: only what happens before the script starts is ours to catch."""
    from neuraldbg.cli import run

    try:
        plan = run.plan(words)
    except NeuralDbgError as error:
        output.notice(f"run: {error}")
        return USAGE
    return run.carry_out(plan)
