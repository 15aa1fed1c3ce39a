"""SIGTERM: finish the run file first, then die of the signal as if nothing were there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

GRACE: Final = 20.0
"""Seconds to finish in; schedulers send SIGKILL about 30 seconds after SIGTERM."""


class Terminator:
    """Owns SIGTERM while the script runs, unless the script or its caller wants it.

    A script that installs its own handler replaces ours. Forked children, e.g. workers
    of a DataLoader, get the default action back.

    Args:
        finish: Completes the run file; called at most once per signal.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._asked = False
        self._busy = False

    def install(self) -> None:
        """Take the signal over, if it has its default action and this is the main thread."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.release)

    def release(self) -> None:
        """Give the signal its default action back, if it is still ours."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def finishing(self, finish: Callable[[], None]) -> None:
        """Finish for another reason; a signal that comes meanwhile takes effect afterwards."""
        self._busy = True
        try:
            finish()
        finally:
            self._busy = False
            self.release()
        if self._asked:
            _die()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # From here on a second signal ends the process at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._asked = True
        watchdog = threading.Timer(GRACE, _die)
        watchdog.daemon = True
        watchdog.start()
        if not self._busy:
            try:
                self._finish()
            finally:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
