"""The process behind `run --live`: reads the run file as `view` does, and draws.

It is not the script's child: a script that waits for any of its children must not meet ours.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from neuraldbg.cli import runs, terminal
from neuraldbg.cli.screen import Screen
from neuraldbg.errors import RunFileError

EVERY: Final = 0.5  # seconds between two looks at the run file, at least
SHARE: Final = 0.1  # of one core that looking may take
_NICE: Final = 10


def main(path: str) -> None:
    """Draw until the other end of the socket at descriptor 0 is shut.

    Descriptor 1 is the terminal. What goes wrong is told through the socket.
    """
    if os.fork():
        os._exit(0)
    with suppress(OSError):
        os.nice(_NICE)
    line = socket.socket(fileno=0)
    try:
        from neuraldbg.report.panel import HEIGHT

        screen = Screen(1, HEIGHT)
        try:
            follow(Path(path), screen, lambda seconds: _over(line, seconds))
        finally:
            screen.close()
    except Exception as error:
        with suppress(OSError):
            line.sendall(f"{type(error).__name__}: {error}".encode())


def follow(path: Path, screen: Screen, over: Callable[[float], bool]) -> None:
    """Draw the run again and again, as often as `SHARE` allows.

    Args:
        path: The run file.
        screen: Where to draw.
        over: Waits so many seconds; says whether it is over.

    Raises:
        OSError: The terminal is gone.
    """
    from neuraldbg.report import panel
    from neuraldbg.store.reader import changed

    seen: list[int] = []
    lines: list[str] = []
    while True:
        begun = time.monotonic()
        width = screen.width
        with suppress(RunFileError, FileNotFoundError):
            if (now := changed(path)) != seen:
                opened = runs.diagnose(str(path))
                lines, seen = panel.lines(opened.record, opened.diagnosis, width), now
        screen.draw(_painted(lines or panel.waiting(width)))
        if over(max(EVERY, (time.monotonic() - begun) / SHARE)):
            return


def _painted(lines: list[str]) -> list[str]:
    if not terminal.colours_wanted():
        return lines
    return terminal.painted("\n".join(lines)).split("\n")


def _over(line: socket.socket, seconds: float) -> bool:
    return bool(select.select([line], [], [], seconds)[0])


if __name__ == "__main__":
    main(sys.argv[1])
