"""The last lines of a terminal, kept for us while everything else scrolls above them.

The terminal itself does it: its scrolling region (DECSTBM) is made to end above our lines.
A script's output, bars of tqdm and what a C library prints go to the terminal untouched, by
whoever wrote them; `sys.stdout` stays what it is. Each drawing is one write, which leaves the
cursor where it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

ROOM: Final = 6  # lines that the script's own output has at least, or we draw nothing
NARROWEST: Final = 40

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_WHOLE: Final = "\x1b[r"
_CLEAR: Final = "\x1b[2K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Screen:
    """The bottom of a terminal.

    Args:
        terminal: A file descriptor of it.
        height: Lines to keep.
    """

    def __init__(self, terminal: int, height: int) -> None:
        self._terminal = terminal
        self._height = height
        self._held: os.terminal_size | None = None  # the size for which the region was set

    @property
    def width(self) -> int:
        """Columns."""
        return self._size().columns

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines; nothing where the terminal is too small.

        Args:
            lines: As many as the height, cut to the width; they may have escapes of colours.

        Raises:
            OSError: The terminal is gone.
        """
        size = self._size()
        if size.lines < self._height + ROOM or size.columns < NARROWEST:
            self.close()
            return
        text = "" if self._held == size else self._claim(size)
        top = size.lines - self._height
        rows = "".join(f"\x1b[{top + i};1H{_CLEAR}{line}" for i, line in enumerate(lines, 1))
        # The region again each time: a script may have cleared or reset the terminal.
        text += f"{_SAVE}\x1b[1;{top}r{_NO_WRAP}{rows}{_WRAP}{_RESTORE}"
        self._write(text)
        self._held = size

    def close(self) -> None:
        """Give the lines back, empty."""
        if self._held is not None:
            top = self._held.lines - self._height + 1
            self._write(f"{_SAVE}{_WHOLE}\x1b[{top};1H\x1b[J{_RESTORE}")
            self._held = None

    def _claim(self, size: os.terminal_size) -> str:
        """Make sure that the cursor stands above our lines."""
        self.close()
        return f"{_SAVE}{_WHOLE}{_RESTORE}" + "\x1bD" * self._height + f"\x1b[{self._height}A"

    def _size(self) -> os.terminal_size:
        return os.get_terminal_size(self._terminal)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8")
        while data:
            data = data[os.write(self._terminal, data) :]
