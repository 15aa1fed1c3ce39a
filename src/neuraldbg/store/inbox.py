"""What is queued between the training and the writer's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Channel, Gap
from neuraldbg.store.frames import Frame

DIAGNOSIS: Final = "diagnosis"  # travels with the facts

DROPPED: Final = Gap(
    "readings", "the run file could not be written as fast as the run produced them"
)

# The Python objects around one small frame, measured with sys.getsizeof; an event has as many.
_ITEM_BYTES: Final = 400


@dataclass(slots=True)
class Batch:
    """What is waiting to be stored; of a fact, only the last state counts."""

    turn: int = 0
    channels: list[tuple[str, int, Channel]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    events: list[SemanticEvent] = field(default_factory=list)
    gaps: dict[Gap, None] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    size: int = 0

    def __bool__(self) -> bool:
        return bool(self.channels or self.frames or self.events or self.gaps or self.facts)


class Inbox:
    """A bounded queue, emptied a batch at a time.

    Args:
        limit: Bytes that may wait. Beyond it, frames and events are dropped and a gap is
            noted. Channels and facts always fit: the model bounds their number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.closed = False
        self._ended = False
        self._hurry = False
        self._batch = Batch()
        self._stored = -1  # the last turn that is safely in the file
        self._changed = threading.Condition()  # re-entrant, for signal handlers

    def put_channels(self, channels: Iterable[tuple[str, int, Channel]]) -> None:
        """Queue new channels: stream, position, channel."""
        with self._changed:
            self._batch.channels.extend(channels)

    def put_frame(self, frame: Frame) -> None:
        """Queue a frame."""
        with self._changed:
            if self._fits(frame.values.nbytes + _ITEM_BYTES):
                self._batch.frames.append(frame)

    def put_event(self, event: SemanticEvent) -> None:
        """Queue an event."""
        with self._changed:
            if self._fits(_ITEM_BYTES):
                self._batch.events.append(event)

    def put_gap(self, gap: Gap) -> None:
        """Queue a gap, once."""
        with self._changed:
            if gap in self._batch.gaps or self._fits(_ITEM_BYTES):
                self._batch.gaps[gap] = None

    def put_fact(self, key: str, value: object) -> None:
        """Queue a fact in place of an earlier one."""
        with self._changed:
            self._batch.facts[key] = value

    def take(self, wait: float) -> Batch:
        """Everything queued, after `wait` seconds or as soon as there is a hurry."""
        with self._changed:
            if wait and not (self._hurry or self.closed):
                self._changed.wait(wait)
            self._hurry = False
            batch, self._batch = self._batch, Batch(self._batch.turn + 1)
            return batch

    def settle(self, batch: Batch) -> None:
        """Tell those who wait that a batch is in the file."""
        with self._changed:
            self._stored = batch.turn
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until what is queued now is settled; False if that does not happen."""
        with self._changed:
            turn = self._batch.turn if self._batch else self._batch.turn - 1
            self._wake()
            self._changed.wait_for(lambda: self._ended or self._stored >= turn, timeout)
            return self._stored >= turn

    def close(self) -> None:
        """Have the queue emptied for the last time."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody empties the queue any more."""
        with self._changed:
            self._ended = True
            self._batch = Batch(self._batch.turn)
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        fits = self._batch.size + size <= self.limit or not self._batch.size
        if fits:
            self._batch.size += size
        else:
            self._batch.gaps[DROPPED] = None
        if 2 * self._batch.size > self.limit:
            self._wake()
        return fits

    def _wake(self) -> None:
        if not self._hurry:
            self._hurry = True
            self._changed.notify_all()
