"""Where each channel's numbers lie in the frames of a stream."""

from __future__ import annotations

from array import array
from typing import Final

from neuraldbg.core.facts import Channel, Kind

_NOWHERE: Final = -1


class Places:
    """Channels in the order in which they were met, by site and metric.

    A run has a site for each module and parameter, and the same few metrics at all of them: a
    row of small integers for each site takes a tenth of what a mapping of the channels does.
    """

    def __init__(self) -> None:
        self._count = 0
        self._metrics: dict[str, int] = {}
        self._rows: dict[Kind, dict[str, array[int]]] = {}

    def __len__(self) -> int:
        return self._count

    def find(self, channel: Channel) -> int | None:
        """The place of a channel, if it has one."""
        column = self._metrics.get(channel.metric, _NOWHERE)
        row = self._rows.get(channel.kind, {}).get(channel.name)
        if row is None or not 0 <= column < len(row) or row[column] == _NOWHERE:
            return None
        return row[column]

    def add(self, channel: Channel) -> int:
        """Give a new channel the next place, and tell it."""
        column = self._metrics.setdefault(channel.metric, len(self._metrics))
        row = self._rows.setdefault(channel.kind, {}).setdefault(channel.name, array("i"))
        row.extend([_NOWHERE] * (column + 1 - len(row)))
        row[column] = self._count
        self._count += 1
        return row[column]
