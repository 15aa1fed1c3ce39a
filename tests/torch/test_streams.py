"""Numbers by channel, and the frames they become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuraldbg.core.facts import Channel, Kind
from neuraldbg.torch.streams import Stream


class Frames:
    """A writer that keeps frames."""

    def __init__(self) -> None:
        self.places: dict[Channel, int] = {}
        self.frames: list[tuple[int, dict[int, float]]] = []

    def channels(self, stream: str, channels: list[Channel]) -> list[int]:
        assert stream == "look"
        return [self.places.setdefault(c, len(self.places)) for c in channels]

    def frame(self, stream: str, step: int, values: Any, present: Any) -> None:
        kept = {int(i): float(values[i]) for i in np.flatnonzero(present)}
        self.frames.append((step, kept))


def channel(name: str) -> Channel:
    return Channel(Kind.MODULE, name, "act_rms")


@pytest.fixture
def frames() -> Frames:
    return Frames()


@pytest.fixture
def stream(frames: Frames) -> Stream:
    return Stream(frames, "look")  # type: ignore[arg-type]


def test_a_frame_holds_what_was_put_since_the_last(stream: Stream, frames: Frames) -> None:
    stream.put(channel("a"), 1.0)
    stream.put(channel("b"), 2.0)
    stream.emit(3)
    stream.put(channel("b"), 5.0)
    stream.emit(4)
    stream.emit(5)
    assert frames.frames == [(3, {0: 1.0, 1: 2.0}), (4, {1: 5.0})]


def test_many_at_once(stream: Stream, frames: Frames) -> None:
    stream.put(channel("c"), 9.0)
    places = stream.positions([channel("a"), channel("b")])
    stream.put_block(places, np.array([1.0, 2.0]), np.array([True, False]))
    stream.emit(0)
    assert frames.frames == [(0, {0: 9.0, 1: 1.0})]
    assert stream.positions([channel("c"), channel("b")]).tolist() == [0, 2]


def test_a_number_that_comes_late(stream: Stream, frames: Frames) -> None:
    """It goes to its own step, and the frame in the making stays as it is."""
    stream.put(channel("a"), 1.0)
    stream.add(0, channel("b"), 7.0)
    stream.emit(2)
    assert frames.frames == [(0, {1: 7.0}), (2, {0: 1.0})]


def test_a_frame_that_cannot_be_written_is_not_written_later(
    stream: Stream, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError

    stream.put(channel("a"), 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(frames, "frame", fail)
        with pytest.raises(OSError):  # noqa: PT011 - made up here
            stream.emit(0)
    stream.emit(1)
    assert frames.frames == []
