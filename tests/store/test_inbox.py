"""The queue between the training and the writer's thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Channel, Gap, Kind
from neuraldbg.core.metrics import STEP
from neuraldbg.store.frames import Frame
from neuraldbg.store.inbox import DROPPED, Inbox

LONG = 30.0  # seconds no test ever waits


def frame(step: int, width: int = 1) -> Frame:
    return Frame(STEP, step, np.zeros(width), None)


def test_what_does_not_fit_is_dropped_and_said() -> None:
    inbox = Inbox(2000)
    for step in range(100):
        inbox.put_frame(frame(step))
    batch = inbox.take(0)
    assert [f.step for f in batch.frames] == [0, 1, 2, 3]
    assert list(batch.gaps) == [DROPPED]
    inbox.put_frame(frame(100))
    assert [f.step for f in inbox.take(0).frames] == [100]


def test_events_and_gaps_are_bounded_too(event: SemanticEvent) -> None:
    inbox = Inbox(4000)
    for i in range(100):
        inbox.put_event(event)
        inbox.put_gap(Gap("a", str(i)))
    batch = inbox.take(0)
    assert len(batch.events) + len(batch.gaps) <= 11
    assert DROPPED in batch.gaps


def test_one_frame_always_fits_however_wide() -> None:
    inbox = Inbox(100)
    inbox.put_frame(frame(0, 1000))
    assert len(inbox.take(0).frames) == 1


def test_channels_and_facts_always_fit() -> None:
    inbox = Inbox(1)
    for step in range(3):
        inbox.put_frame(frame(step))
    channel = Channel(Kind.RUN, "", "step_seconds")
    inbox.put_channels([(STEP, 0, channel)])
    inbox.put_fact("run", 1)
    inbox.put_fact("run", 2)
    batch = inbox.take(0)
    assert batch.channels == [(STEP, 0, channel)]
    assert batch.facts == {"run": 2}


def test_a_gap_is_queued_once() -> None:
    inbox = Inbox(10_000)
    for _ in range(100):
        inbox.put_gap(Gap("a", "b"))
    assert list(inbox.take(0).gaps) == [Gap("a", "b")]


@pytest.mark.parametrize("wake", ["flush", "close", "fill"])
def test_a_hurry_ends_the_wait(wake: str) -> None:
    inbox = Inbox(1000)
    taken = threading.Event()

    def take() -> None:
        inbox.take(LONG)
        taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    if wake == "flush":
        inbox.put_gap(Gap("a", "b"))
        inbox.flush(0.001)
    elif wake == "close":
        inbox.close()
    else:
        inbox.put_frame(frame(0, 100))
    assert taken.wait(LONG / 3)
    thread.join()


def test_flush_waits_for_its_own_batch_and_no_longer() -> None:
    inbox = Inbox(10_000)
    assert inbox.flush(0)  # nothing is queued
    inbox.put_gap(Gap("a", "b"))
    assert not inbox.flush(0.01)
    first = inbox.take(0)
    inbox.put_gap(Gap("c", "d"))
    inbox.settle(first)
    assert not inbox.flush(0.01)
    inbox.settle(inbox.take(0))
    assert inbox.flush(0)


def test_flush_is_not_left_waiting_when_the_thread_ends() -> None:
    inbox = Inbox(10_000)
    inbox.put_gap(Gap("a", "b"))
    threading.Timer(0.05, inbox.end).start()
    assert not inbox.flush(LONG)
