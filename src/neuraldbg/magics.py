"""`%load_ext neuraldbg`: the magic `%neuraldbg` for notebooks.

`%%neuraldbg` watches whatever trains in its cell, and shows the run while it does;
`%neuraldbg explain RUN` shows a diagnosis, and the other verbs are those of the command line.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from neuraldbg.config import DEFAULT_BUDGET, Config
from neuraldbg.errors import NeuralDbgError, UsageError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from neuraldbg.core.diagnosis import Diagnosis

COMMAND = "notebook"
"""What stands for the script in a run that a cell trained."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Make the magic known; IPython calls this."""

    def magic(line: str, cell: str | None = None) -> Diagnosis | None:
        try:
            if cell is not None:
                _watch(shell, line, cell)
                return None
            return _verb(line)
        except NeuralDbgError as error:
            print(f"neuraldbg: {error}")  # noqa: T201 - the output of the cell
            return None

    register = shell.register_magic_function
    register(magic, "line_cell", "neuraldbg")  # type: ignore[arg-type]


def _verb(line: str) -> Diagnosis | None:
    """A verb of the command line; `explain` gives the diagnosis itself."""
    words = shlex.split(line)
    if words[:1] == ["run"]:
        msg = "a script needs a process of its own: !neuraldbg run train.py; %%neuraldbg for a cell"
        raise UsageError(msg)
    if words[:1] == ["explain"] and len(words) == 2 and not words[1].startswith("-"):
        from neuraldbg.run import explain

        return explain(words[1])
    from neuraldbg.cli.program import main

    main(words)
    return None


def _watch(shell: InteractiveShell, line: str, cell: str) -> None:
    """Run a cell under observation, and show what is found."""
    if line.strip():
        msg = f"%%neuraldbg takes no words, not {line.strip()!r}; the cell is what it watches"
        raise UsageError(msg)
    config = Config.from_env()
    if config.off:
        shell.run_cell(cell)
        return
    from neuraldbg.torch import attach
    from neuraldbg.torch.display import Display

    session = attach.start(None, DEFAULT_BUDGET, config.strict, [COMMAND])
    shown = Display(session.path, lambda error: session.gap("the display", repr(error)))
    error = None
    try:
        error = shell.run_cell(cell).error_in_exec
    finally:
        found = session.finish(_ending(error), error)
        shown.end()
    if found is None:
        shown.say("NeuralDBG saw no training in this cell.")


def _ending(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "exception"
