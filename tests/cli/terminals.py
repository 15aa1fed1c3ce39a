"""Programs on a real terminal (a pty), whose screen an emulator keeps."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from .programs import environment

ROWS, COLUMNS = 30, 80
QUIET = 0.5  # seconds without a word, after which all has arrived


class Terminal:
    """A terminal of so many lines, and a program that runs on it."""

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.ours, self.theirs = pty.openpty()
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def start(self, words: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        """Run a program here."""
        kept = {k: v for k, v in environment().items() if k not in ("NO_COLOR", "FORCE_COLOR")}
        self.program = subprocess.Popen(
            words, cwd=folder, env={**kept, "TERM": "xterm-256color", **env},
            stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, start_new_session=True,
        )  # fmt: skip
        os.close(self.theirs)

    def until(self, text: str) -> None:
        """Wait until the screen shows this."""
        while text not in self.shown():
            self.feed()

    def type(self, text: str) -> None:
        """Type on its keyboard."""
        os.write(self.ours, text.encode())

    def end(self) -> int:
        """Wait for the program and all who write to the terminal."""
        try:
            while True:
                self.feed()
        except OSError:  # nobody holds the other end any more
            os.close(self.ours)
        return self.program.wait()

    def feed(self) -> None:
        """Take in what was written."""
        self._stream.feed(os.read(self.ours, 65536))

    def drain(self) -> None:
        """Take in all that was written; the kernel hands it over in parts, and not at once."""
        while select.select([self.ours], [], [], QUIET)[0]:
            self.feed()

    def shown(self) -> str:
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def scrolled(self) -> str:
        """What is on the screen, and what was."""
        width = range(self.screen.columns)
        past = ["".join(row[i].data for i in width) for row in self.screen.history.top]
        return "\n".join([*(line.rstrip() for line in past), self.shown()])
