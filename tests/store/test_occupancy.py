"""Two runs never write one file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from neuraldbg.core.facts import RunFact
from neuraldbg.errors import RunFileError
from neuraldbg.store import occupancy
from neuraldbg.store.reader import load_record
from neuraldbg.store.writer import RunWriter

OPEN = """
import os, sys
from pathlib import Path
from neuraldbg.core.facts import RunFact
from neuraldbg.store.writer import RunWriter
RunWriter(Path(sys.argv[1]), RunFact(id="old"))
"""


def claimed_by(path: Path, change: dict[str, object]) -> None:
    claim = json.loads(occupancy.claim()) | change
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO fact VALUES('writer', ?)", (json.dumps(claim),))
        connection.commit()


def test_a_file_that_is_being_written_is_not_replaced(writer: RunWriter, fact: RunFact) -> None:
    with pytest.raises(RunFileError, match=rf"is being written by process {os.getpid()}.*--out"):
        RunWriter(writer.path, RunFact(id="second"))
    assert writer.flush()
    assert load_record(writer.path).facts.run == fact


def test_nor_by_another_process(writer: RunWriter, python: Callable[..., Any]) -> None:
    result = python(OPEN, writer.path)
    assert "RunFileError" in result.stderr
    assert f"process {os.getpid()}" in result.stderr


def test_a_file_is_free_once_it_is_closed(writer: RunWriter) -> None:
    writer.close()
    RunWriter(writer.path, RunFact(id="second")).close()
    assert load_record(writer.path).facts.run.id == "second"


def test_a_file_is_free_once_its_process_is_dead(path: Path, python: Callable[..., Any]) -> None:
    assert python(OPEN + "os._exit(0)", path).returncode == 0
    assert Path(f"{path}-wal").exists()
    RunWriter(path, RunFact(id="second")).close()
    assert load_record(path).facts.run.id == "second"


def test_a_dead_process_that_nobody_buried_does_not_count(finished: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        born = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        claimed_by(finished, {"pid": process.pid, "born": born})
        with pytest.raises(RunFileError, match=f"process {process.pid}"):
            occupancy.check(finished)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        occupancy.check(finished)


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"born": "1"}, {"pid": 2**30}, {"pid": "x"}, {"born": None}]
)
def test_other_claims_do_not_count(finished: Path, change: dict[str, object]) -> None:
    claimed_by(finished, change)
    occupancy.check(finished)


def test_this_very_claim_does(finished: Path) -> None:
    claimed_by(finished, {})
    with pytest.raises(RunFileError):
        occupancy.check(finished)
