"""Real ends: killed processes, full disks, signals in the wrong moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuraldbg.core.facts import Kind
from neuraldbg.store.reader import RunFile, load_record

PREPARE = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from neuraldbg.core.facts import Channel, Kind, RunFact
from neuraldbg.store.writer import RunWriter

def tell(error):
    print("told", type(error).__name__, error, flush=True)

writer = RunWriter(Path(sys.argv[1]), RunFact(id="r"), on_error=tell)
writer.channels("step", [Channel(Kind.LOSS, "loss", "value")])
"""

ENDLESS = (
    PREPARE
    + """
step = 0
while True:
    writer.frame("step", step, np.array([step * 0.5]))
    os.write(1, f"{step} {time.monotonic()}\\n".encode())
    step += 1
    time.sleep(0.002)
"""
)

FULL = (
    PREPARE
    + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
for step in range(100):
    writer.frame("step", step, np.ones(1))
assert writer.flush()
writer.channels("step", [Channel(Kind.LOSS, str(i), "value") for i in range(1000)])
for step in range(100, 400):
    writer.frame("step", step, np.ones(1000))
assert not writer.flush()
start = time.perf_counter()
for step in range(10_000):
    writer.frame("step", step, np.ones(1000))
assert time.perf_counter() - start < 1
writer.close()
print("error", type(writer.error).__name__)
"""
)

SIGNALS = (
    PREPARE
    + """
import faulthandler
faulthandler.dump_traceback_later(40, exit=True)
caught = 0
def handle(number, frame):
    global caught
    caught += 1
    writer.frame("step", -caught, np.ones(1))
    if caught % 20 == 0:
        writer.flush()
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
step = 0
while caught < 200:
    writer.frame("step", step, np.ones(1))
    if step % 5000 == 0:
        writer.flush()
    step += 1
signal.setitimer(signal.ITIMER_REAL, 0)
writer.close()
print(caught >= 200, writer.error)
"""
)


def test_a_killed_process_loses_a_second_at_most(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        start = time.monotonic()
        while time.monotonic() - start < 2.8:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
    written = [line.split() for line in lines]
    old = [int(step) for step, when in written if float(when) < killed - 1.0]
    assert len(old) > 50
    series = load_record(path).series(Kind.LOSS, "loss", "value")
    assert series.steps.tolist() == list(range(len(series)))
    assert len(series) > old[-1]
    assert (series.values == series.steps * 0.5).all()
    with RunFile(path) as run:
        assert run.facts().run.finished is None


def test_a_full_disk_ends_the_recording_and_nothing_else(
    path: Path, python: Callable[..., Any]
) -> None:
    result = python(FULL, path)
    assert (result.returncode, result.stderr) == (0, "")
    told, error = result.stdout.splitlines()
    assert told.startswith("told OperationalError")
    assert error == "error OperationalError"
    series = load_record(path).series(Kind.LOSS, "loss", "value")
    assert series.steps[:100].tolist() == list(range(100))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a file system")
def test_a_file_system_that_is_really_full(tmp_path: Path, python: Callable[..., Any]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        result = python(FULL, disk / "r.ndbg")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("told OperationalError database or disk is full")
        series = load_record(disk / "r.ndbg").series(Kind.LOSS, "loss", "value")
        assert series.steps[:100].tolist() == list(range(100))
    finally:
        subprocess.run(["umount", str(disk)], check=True)  # noqa: S607


def test_a_signal_handler_may_write(path: Path, python: Callable[..., Any]) -> None:
    result = python(SIGNALS, path)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "True None\n")
    series = load_record(path).series(Kind.LOSS, "loss", "value")
    assert (series.steps < 0).sum() >= 200
    assert (series.steps[series.steps < 0] == np.arange(series.steps[0], 0)).all()


def test_a_process_that_forgets_to_close_leaves_a_file_that_reads(
    path: Path, python: Callable[..., Any]
) -> None:
    result = python(PREPARE + 'writer.frame("step", 0, np.ones(1)); assert writer.flush()', path)
    assert (result.returncode, result.stderr) == (0, "")
    assert load_record(path).series(Kind.LOSS, "loss", "value").steps.tolist() == [0]
