"""The SQLite side of writing: what has been queued goes into the file, and old frames go out.

Lives in the writer's thread and knows nothing of threads. Never leave a reference to a
ledger where a forked child could find it: closing the inherited connection there would
touch the file of the parent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Channel, Gap, RunFact
from neuraldbg.core.record import Record
from neuraldbg.errors import RunFileError
from neuraldbg.store import codec, load, occupancy, schema
from neuraldbg.store.faults import uncreatable
from neuraldbg.store.frames import Frame, merge, pack
from neuraldbg.store.inbox import DIAGNOSIS, Batch
from neuraldbg.store.thin import thin

# Shares of the size limit. Thinning starts well before the limit, because the queue goes on
# filling meanwhile, and goes far enough down to be rare.
_HIGH: Final = 0.75
_LOW: Final = 0.5

_FOLD_MILLISECONDS: Final = 1000  # what closing waits for readers

THINNED: Final = Gap(
    "old readings",
    "thinned to keep the run file under its size limit; the first and the newest are complete",
)
FULL: Final = Gap("late readings", "the run file reached its size limit; they were not stored")


class Ledger:
    """A run file that is being written.

    Args:
        path: Where; an older run file there is replaced.
        run: The first fact.
        max_bytes: The size limit.

    Raises:
        RunFileError: The file cannot be made there.
    """

    def __init__(self, path: Path, run: RunFact, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._newest: dict[str, int] = {}
        self._full = False  # even thinning made no room
        self._size = schema.Size(0, 0)
        self._connection = _create(path, run)
        gap = schema.start_log(self._connection)
        if gap is not None:
            self.store(Batch(gaps={gap: None}))

    def store(self, batch: Batch) -> None:
        """Store a batch in one transaction."""
        if not batch:
            return
        with schema.transaction(self._connection):
            self._store_channels(batch.channels)
            self._store_frames(batch.frames)
            self._store_events(batch.events)
            self._store_gaps(batch.gaps)
            self._store_facts(batch.facts)
        self._size = schema.size(self._connection)

    @property
    def crowded(self) -> bool:
        """Whether it is time to thin."""
        return not self._full and self._size.used > _HIGH * self._max_bytes

    def has_room(self, needed: int) -> bool:
        """Whether so many bytes more keep the file under the limit; free pages are used first."""
        return self._size.used + needed < self._max_bytes

    def record(self) -> Record:
        """Everything stored so far."""
        return load.record(self._connection)

    def thin(self) -> Iterator[None]:
        """Make room in many short transactions, yielding after each."""
        for part, _ in enumerate(thin(self._connection, int(_LOW * self._max_bytes))):
            if part == 0:
                self.store(Batch(gaps={THINNED: None}))
            self._size = schema.size(self._connection)
            yield
        if self.crowded:
            self._full = True
            self.store(Batch(gaps={FULL: None}))

    def close(self) -> None:
        """Finish: fold the log into the file, so that a single file remains."""
        try:
            # A reader that is busy right now, or a full disk, keeps the log from being folded
            # in; the pair of files reads as well.
            with suppress(sqlite3.OperationalError):
                self._connection.execute("DELETE FROM fact WHERE key = ?", (occupancy.FACT,))
                self._connection.execute(f"PRAGMA busy_timeout = {_FOLD_MILLISECONDS}")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            self._connection.close()

    def _store_channels(self, channels: Iterable[tuple[str, int, Channel]]) -> None:
        self._connection.executemany(
            "INSERT INTO channel(stream, position, kind, name, metric) VALUES(?, ?, ?, ?, ?)",
            (
                (stream, position, str(kind), codec.storable(name), codec.storable(metric))
                for stream, position, (kind, name, metric) in channels
            ),
        )

    def _store_frames(self, frames: Iterable[Frame]) -> None:
        if self._full:
            return
        for frame in frames:
            whole = self._merged(frame)
            self._connection.execute(
                "INSERT OR REPLACE INTO frame VALUES(?, ?, ?, ?)",
                (frame.stream, frame.step, *pack(whole)),
            )

    def _merged(self, frame: Frame) -> Frame:
        if frame.step > self._newest.get(frame.stream, frame.step - 1):
            self._newest[frame.stream] = frame.step
            return frame
        query = 'SELECT step, "values", present FROM frame WHERE stream = ? AND step = ?'
        old = self._connection.execute(query, (frame.stream, frame.step)).fetchone()
        return frame if old is None else merge(old, frame)

    def _store_events(self, events: Iterable[SemanticEvent]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO event VALUES(?, ?, ?)",
            ((codec.storable(e.id), int(e.step), codec.encode(e)) for e in events),
        )

    def _store_gaps(self, gaps: Iterable[Gap]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO gap VALUES(?, ?)",
            ((codec.storable(gap.what), codec.storable(gap.why)) for gap in gaps),
        )

    def _store_facts(self, facts: dict[str, object]) -> None:
        for key, value in facts.items():
            if key == DIAGNOSIS:
                query = "INSERT OR REPLACE INTO diagnosis VALUES(1, ?)"
                self._connection.execute(query, (codec.storable(str(value)),))
            else:
                query = "INSERT OR REPLACE INTO fact VALUES(?, ?)"
                self._connection.execute(query, (key, codec.encode(value)))


def _create(path: Path, run: RunFact) -> sqlite3.Connection:
    occupancy.check(path)
    try:
        return schema.create(path, {"run": codec.encode(run), occupancy.FACT: occupancy.claim()})
    except RunFileError:
        raise
    except (OSError, sqlite3.Error) as error:
        raise uncreatable(path, error) from error
