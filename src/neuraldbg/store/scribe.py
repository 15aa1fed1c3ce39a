"""The writer's thread: empties the queue into the file until it is told to end, or fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Gap, RunFact
from neuraldbg.core.record import Record
from neuraldbg.store.faults import uncreatable
from neuraldbg.store.forks import guarded, no_fork
from neuraldbg.store.inbox import Batch, Inbox
from neuraldbg.store.ledger import Ledger

Detect = Callable[[Record], Iterable[SemanticEvent]]

# Half of the half second that is promised, to leave time for the commit.
_INTERVAL_SECONDS: Final = 0.25


class Scribe:
    """A thread that owns the file.

    The ledger lives in the local variables of the thread and nowhere else: a forked child
    has no such thread, so it can never close the file of its parent.

    Args:
        path: The file to make.
        inbox: What it empties.
        max_bytes: The size limit of the file.
        on_error: As for `RunWriter`.
        before_thin: As for `RunWriter`.
    """

    def __init__(
        self,
        path: Path,
        inbox: Inbox,
        max_bytes: int,
        on_error: Callable[[Exception], None] | None,
        before_thin: Detect | None,
    ) -> None:
        self.error: Exception | None = None
        self._path = path
        self._inbox = inbox
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._before_thin = before_thin
        self._opened = False
        self._ready = threading.Event()

    def start(self, run: RunFact) -> None:
        """Make the file and begin.

        Raises:
            RunFileError: The file cannot be made.
        """
        self._thread = threading.Thread(
            target=self._work, args=(run,), name="neuraldbg-writer", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # the system's limit of threads
            raise uncreatable(self._path, error) from error
        # A thread that dies before it can say so must not be waited for.
        while not self._ready.wait(_INTERVAL_SECONDS) and self._thread.is_alive():
            pass
        if not self._opened:
            raise self.error or uncreatable(self._path, RuntimeError("the writer's thread died"))

    def join(self, timeout: float) -> None:
        """Wait for the end."""
        self._thread.join(timeout)

    @property
    def is_current(self) -> bool:
        """Whether it is this very thread that asks."""
        return threading.current_thread() is self._thread

    # From here on: the thread.

    def _work(self, run: RunFact) -> None:
        try:
            with no_fork():
                ledger = Ledger(self._path, run, self._max_bytes)
            self._opened = True
            self._ready.set()
            self._serve(ledger)
        except Exception as error:
            self._fail(error)
        finally:
            try:
                self._inbox.end()
            except Exception as error:
                self._fail(error)
            self._ready.set()

    def _fail(self, error: Exception) -> None:
        self.error = error
        if self._opened and self._on_error is not None:
            with suppress(Exception):
                self._on_error(error)

    def _serve(self, ledger: Ledger) -> None:
        try:
            last = False
            while not last:
                last = self._inbox.closed  # asked first: nothing is queued once it is set
                self._store(ledger, _INTERVAL_SECONDS)
                if ledger.crowded and not last:
                    self._thin(ledger)
        finally:
            with no_fork():
                ledger.close()

    def _store(self, ledger: Ledger, wait: float) -> None:
        batch = self._inbox.take(wait)
        with no_fork():
            ledger.store(batch)
        self._inbox.settle(batch)

    def _thin(self, ledger: Ledger) -> None:
        if self._before_thin is not None:
            self._detect(ledger, self._before_thin)
        for _ in guarded(ledger.thin()):
            if ledger.has_room(self._inbox.limit):
                self._store(ledger, 0)

    def _detect(self, ledger: Ledger, detect: Detect) -> None:
        with no_fork():
            record = ledger.record()
        try:
            found = Batch(events=list(detect(record)))
        except Exception as error:  # a detector's bug must not end the recording
            gap = Gap("events of old readings", f"the detector failed: {error}")
            found = Batch(gaps={gap: None})
        with no_fork():
            ledger.store(found)
