"""A display in a notebook that follows a run file while the training goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from IPython.core.getipython import get_ipython
from IPython.display import HTML, display

from neuraldbg.errors import RunFileError
from neuraldbg.report import notebook
from neuraldbg.run import diagnose_open
from neuraldbg.store.forks import no_fork
from neuraldbg.store.reader import RunFile, changed

EVERY: Final = 1.0  # seconds between two looks at the run file, at least
SHARE: Final = 0.05  # of the time that looking may take from the training
GRACE: Final = 10.0  # seconds to wait for the last look


class Display:
    """Shows a run below the cell that made this, and keeps it fresh from a thread.

    Args:
        path: The run file.
        failed: Told why the display ended early, if it did.
    """

    def __init__(self, path: Path, failed: Callable[[Exception], None]) -> None:
        self._path = path
        self._failed = failed
        self._seen: list[int] = []
        self._over = threading.Event()
        waiting = HTML(notebook.sentence("NeuralDBG is waiting for the first step."))
        self._handle = display(waiting, display_id=True)
        self._thread = threading.Thread(target=self._follow, name="neuraldbg-display", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Show the run as it is in the end."""
        self._over.set()
        self._thread.join(GRACE)

    def say(self, text: str) -> None:
        """Show a notice in its place."""
        self._handle.update(HTML(notebook.sentence(text)))

    def _follow(self) -> None:
        pause, last = 0.0, False
        try:
            while not last:
                last = self._over.wait(pause)
                begun = time.monotonic()
                self._look()
                pause = max(EVERY, (time.monotonic() - begun) / SHARE)
        except Exception as error:  # never the training's business
            self._failed(error)

    def _look(self) -> None:
        now = changed(self._path)
        if now == self._seen:
            return
        try:
            with no_fork(), RunFile(self._path) as file:
                record = file.record()
                found = diagnose_open(file, record)
        except RunFileError:  # not there yet, or no more
            return
        if record.channels:
            self._handle.update(HTML(notebook.watched(record, found)))
        self._seen = now


def in_notebook() -> bool:
    """Whether a display can be changed once it is shown; a terminal's cannot."""
    return hasattr(get_ipython(), "kernel")
