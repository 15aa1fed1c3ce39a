"""Forked children: they never write, never touch the file, and never inherit SQLite's locks."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from neuraldbg.core.facts import Kind
from neuraldbg.core.metrics import STEP
from neuraldbg.store.forks import no_fork
from neuraldbg.store.reader import load_record
from neuraldbg.store.writer import RunWriter

FORK = """
import faulthandler, gc, os, sys, threading, warnings
from pathlib import Path
import numpy as np
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Channel, Gap, Kind, RunFact
from neuraldbg.store.writer import RunWriter

writer = RunWriter(Path(sys.argv[1]), RunFact(id="parent"))
loss = [Channel(Kind.LOSS, "loss", "value")]
writer.channels("step", loss)
writer.frame("step", 0, np.zeros(1))
assert writer.flush()
writer.frame("step", 1, np.ones(1))  # still in the queue, which the child inherits

held, forked = threading.Event(), threading.Event()
def hold():
    with writer._inbox._changed:  # the child inherits this lock locked, and without its owner
        held.set()
        forked.wait(10)
threading.Thread(target=hold).start()
held.wait(10)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
    child = os.fork()
forked.set()
if child == 0:
    faulthandler.dump_traceback_later(20, exit=True)
    assert writer.channels("step", [*loss, Channel(Kind.LOSS, "child", "value")]) == [0, 1]
    writer.frame("step", 2, np.ones(1))
    writer.event(SemanticEvent("e", EventType.LOSS, "loss", 1, "a", "b"))
    writer.gap(Gap("child", "wrote"))
    writer.run(RunFact(id="child"))
    assert writer.flush() is False
    writer.close()
    del writer
    gc.collect()
    sys.exit(7)  # with all that Python does at its end

assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
writer.frame("step", 3, np.ones(1))
assert writer.flush()
if sys.argv[2] == "close":
    writer.close()
    assert writer.error is None
os._exit(0)
"""


def test_a_child_never_writes(path: Path, python: Callable[..., Any]) -> None:
    for end in ("close", "crash"):
        result = python(FORK, path, end)
        assert (result.returncode, result.stderr) == (0, "")
        assert Path(f"{path}-wal").exists() == (end == "crash")
        record = load_record(path)
        assert record.facts.run.id == "parent"
        assert record.facts.gaps == ()
        assert [c.name for c in record.channels] == ["loss"]
        assert record.series(Kind.LOSS, "loss", "value").steps.tolist() == [0, 1, 3]
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_writer_is_inside_while_it_commits(writer: RunWriter) -> None:
    writer.frame(STEP, 0, np.ones(1))
    with no_fork():
        assert not writer.flush(0.5)
    assert writer.flush()


def child_that(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def test_a_fork_waits_for_sqlite() -> None:
    inside, leave = threading.Event(), threading.Event()
    times: dict[str, float] = {}

    def commit() -> None:
        with no_fork():
            inside.set()
            leave.wait(10)
            times["left"] = time.monotonic()

    thread = threading.Thread(target=commit)
    thread.start()
    inside.wait(10)
    threading.Timer(0.2, leave.set).start()
    child = child_that(lambda: None)
    times["forked"] = time.monotonic()
    thread.join()
    os.waitpid(child, 0)
    assert times["forked"] >= times["left"]


def test_the_gate_is_open_on_both_sides_of_a_fork() -> None:
    def pass_through() -> None:
        threading.Timer(5, lambda: os._exit(1)).start()
        with no_fork():
            os._exit(7)

    child = child_that(pass_through)
    with no_fork():
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with no_fork():
        pass
