"""Signs of life while a script runs, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from neuraldbg.cli.output import Notices

FIRST: Final = 10.0
EVERY: Final = 60.0


class Progress:
    """Prints the latest state now and then: a whole line, never over the script's own.

    Args:
        notices: Where to print.
        clock: Seconds, increasing.
    """

    def __init__(self, notices: Notices, clock: Callable[[], float] = time.monotonic) -> None:
        self._notices = notices
        self._clock = clock
        self._due = clock() + FIRST
        self._last = ""

    def __call__(self, text: str) -> None:
        """Take note of the state; print it if the last line is long ago and it is news."""
        now = self._clock()
        if now < self._due or text == self._last:
            return
        self._due = now + EVERY
        self._last = text
        if not _through_tqdm(text):
            self._notices.say(text)


def _through_tqdm(text: str) -> bool:
    """Print between the bars of tqdm, if the script uses it."""
    tqdm = sys.modules.get("tqdm")
    write = getattr(getattr(tqdm, "tqdm", None), "write", None)
    if write is None:
        return False
    write(f"neuraldbg: {text}", file=sys.stderr)
    return True
