"""Numbers on their way from a device to the host, which nobody waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from neuraldbg.core.facts import Channel

ROOM: Final = 256  # numbers under way at once; then the oldest is waited for

Late = tuple[int, Channel, float]
Entry = tuple[int, Channel, Tensor, torch.cuda.Event | None]


class Delayed:
    """A queue of single numbers, copied to pinned memory without waiting."""

    def __init__(self) -> None:
        self._queue: deque[Entry] = deque()
        self._room: Tensor | None = None
        self._sent = 0

    def send(self, step: int, channel: Channel, number: Tensor) -> None:
        """Begin to fetch a number.

        Args:
            step: When it was read.
            channel: Where it was read.
            number: A 0-d tensor on any device.
        """
        if len(self._queue) >= ROOM:
            self._queue[-ROOM] = _kept(self._queue[-ROOM])
        if number.device.type != "cuda":
            self._queue.append((step, channel, number.detach().cpu(), None))
            return
        if self._room is None:
            self._room = torch.zeros(ROOM, device="cpu", dtype=torch.float64, pin_memory=True)
        place = self._room[self._sent % ROOM]
        self._sent += 1
        place.copy_(number.detach(), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(number.device))
        self._queue.append((step, channel, place, event))

    def arrived(self, *, wait: bool) -> Iterator[Late]:
        """The numbers that have arrived since, in the order they were sent.

        Args:
            wait: Whether to wait for those under way.
        """
        while self._queue:
            step, channel, place, event = self._queue[0]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self._queue.popleft()
            yield step, channel, float(place)


def _kept(entry: Entry) -> Entry:
    """The entry with its number in memory of its own."""
    step, channel, place, event = entry
    if event is not None:
        event.synchronize()
    return step, channel, place.clone(), None
