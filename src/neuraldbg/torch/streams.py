"""Numbers by channel, gathered over a step and handed to the run file as one frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neuraldbg.core.facts import Channel

if TYPE_CHECKING:
    from neuraldbg.store.writer import RunWriter


class Stream:
    """The channels of one stream and the frame in the making.

    Args:
        writer: The run file.
        name: `step` or `look`.
    """

    def __init__(self, writer: RunWriter, name: str) -> None:
        self.writer = writer
        self.name = name
        self._index: dict[Channel, int] = {}  # of channels that are set one by one
        self._values = np.zeros(0)
        self._present = np.zeros(0, np.bool_)
        self._begun = False

    def positions(self, channels: Sequence[Channel]) -> NDArray[np.int64]:
        """Register channels and return where their values go."""
        places = self.writer.channels(self.name, list(channels))
        room = max(places, default=-1) + 1 - len(self._values)
        if room > 0:
            self._values = np.append(self._values, np.zeros(room))
            self._present = np.append(self._present, np.zeros(room, np.bool_))
        return np.array(places, np.int64)

    def put(self, channel: Channel, value: float) -> None:
        """Set one channel of the frame in the making."""
        place = self._index.get(channel)
        if place is None:
            place = self._index[channel] = int(self.positions([channel])[0])
        self._values[place] = value
        self._present[place] = self._begun = True

    def put_block(
        self, places: NDArray[np.int64], values: NDArray[np.float64], present: NDArray[np.bool_]
    ) -> None:
        """Set many channels at once."""
        self._values[places] = values
        self._present[places] = present
        self._begun = True

    def emit(self, step: int) -> None:
        """Hand over the frame of a step and begin the next."""
        if not self._begun:
            return
        present, self._present = self._present, np.zeros(len(self._present), np.bool_)
        self._begun = False
        if present.any():
            self.writer.frame(self.name, step, self._values, present)

    def add(self, step: int, channel: Channel, value: float) -> None:
        """Set one channel of a step whose frame was handed over before."""
        place = int(self.positions([channel])[0])
        values, present = np.zeros(place + 1), np.zeros(place + 1, np.bool_)
        values[place], present[place] = value, True
        self.writer.frame(self.name, step, values, present)
