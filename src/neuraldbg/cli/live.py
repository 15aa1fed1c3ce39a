"""`run --live`: a process of its own draws the run at the bottom of the terminal.

A process, because a thread would take the interpreter's lock from the training while it
diagnoses; and not `rich.live`, which must take over `sys.stdout` and `sys.stderr` to print
above itself, and so changes what the script meets there.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from neuraldbg.cli import places, watcher
from neuraldbg.cli.output import Notices

GRACE: Final = 3.0
"""Seconds to wait for the last drawing to be wiped away."""

_STARTS: Final = 10.0  # seconds to wait for the process to be there

# Started apart from the script's folder, environment of Python and signals.
_START: Final = (
    "import os, sys; sys.path[:0] = sys.argv[2].split(os.pathsep); "
    f"from {watcher.__name__} import main; main(sys.argv[1])"
)


def obstacle(notices: Notices) -> str:
    """Why nothing can be drawn, or an empty string."""
    if not notices.terminal:
        return "stderr is no terminal"
    if os.environ.get("TERM", "dumb") == "dumb":
        return f"the terminal is {os.environ.get('TERM')!r}, which cannot move its cursor"
    return ""


def start(run_file: Path, notices: Notices, path: Sequence[str]) -> Live | None:
    """Begin to draw, if a person can see it; says so in one line if not.

    Args:
        run_file: What to draw.
        notices: On the terminal to draw on.
        path: Where Python finds modules, without the script's own folder.

    Raises:
        OSError: The process cannot be started.
    """
    if places.rank():
        return None
    why_not = obstacle(notices)
    if why_not or notices.stream is None:
        notices.say(f"--live shows nothing: {why_not}")
        return None
    return Live(run_file, notices.stream.fileno(), path)


class Live:
    """The process that draws, as seen from the script's.

    Args:
        run_file: What it draws.
        terminal: File descriptor of the terminal.
        path: Where Python finds modules, without the script's own folder.
    """

    def __init__(self, run_file: Path, terminal: int, path: Sequence[str]) -> None:
        home = str(Path(__file__).parents[2])
        words = [str(run_file.absolute()), os.pathsep.join([*filter(None, path), home])]
        self._line, theirs = socket.socketpair()
        try:
            _draw(words, theirs.fileno(), terminal)
        except BaseException:
            self._line.close()
            raise
        finally:
            theirs.close()

    def stop(self) -> str:
        """Have it wipe its lines away and end.

        Returns:
            What went wrong there; empty if nothing did.
        """
        said = b""
        with suppress(OSError), self._line as line:
            line.settimeout(GRACE)
            line.shutdown(socket.SHUT_WR)
            while part := line.recv(4096):
                said += part
        return said.decode(errors="replace")


def _draw(words: Sequence[str], line: int, terminal: int) -> None:
    """Start what draws. It forks and ends at once: what goes on is nobody's child."""
    subprocess.run(  # noqa: S603 - this package, by the same interpreter
        [sys.executable, "-I", "-c", _START, *words],
        stdin=line,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is meant for the script
        cwd="/",
        timeout=_STARTS,
        check=True,
    )
