"""Reading: in any state and folder, and an error that says what is wrong."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from neuraldbg.core.facts import Channel, Kind, RunFact
from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.errors import RunFileError
from neuraldbg.store.reader import RunFile, load_record
from neuraldbg.store.writer import RunWriter

PAGE = 4096  # SQLite's usual size
LOSS = Channel(Kind.LOSS, "loss", "value")


def read_all(path: Path) -> None:
    with RunFile(path) as run:
        record = run.record()
        run.events()
        run.gaps()
        run.diagnosis_json()
    for series in record.channels.values():
        assert (np.diff(series.steps) > 0).all()
        assert series.steps.shape == series.values.shape


def crashed(finished: Path, folder: Path) -> Path:
    """A copy as a killed process leaves it: all of its frames are still in the log."""
    writer = RunWriter(finished.with_name("live.ndbg"), RunFact(id="live"))
    writer.channels(STEP, [LOSS])
    for step in range(100):
        writer.frame(STEP, step, np.array([float(step)]))
    assert writer.flush()
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{writer.path}{suffix}", folder / f"r.ndbg{suffix}")
    writer.close()
    return folder / "r.ndbg"


def change(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_series_of_a_finished_run(finished: Path) -> None:
    record = load_record(finished)
    loss = record.series(Kind.LOSS, "loss", "value")
    assert loss.steps.tolist() == list(range(50))
    assert loss.values[3] == 1 / 4
    look = record.series(Kind.MODULE, "m1", "act_rms")
    assert look.steps.tolist() == look.values.tolist() == list(range(0, 50, 5))
    assert len(record.series(Kind.MODULE, "m2", "act_rms")) == 0  # never present
    assert not look.steps.flags.writeable


def test_a_channel_of_both_streams_is_one_series(path: Path, fact: RunFact) -> None:
    writer = RunWriter(path, fact)
    for stream in (STEP, LOOK):
        writer.channels(stream, [LOSS])
    for step, value in ((1, 0.1), (3, 0.3), (5, 0.5)):
        writer.frame(STEP, step, np.array([value]))
    for step in (0, 3, 4):
        writer.frame(LOOK, step, np.array([9.0], np.float32))
    writer.close()
    series = load_record(path).channels[LOSS]
    assert series.steps.tolist() == [0, 1, 3, 4, 5]
    assert series.values.tolist() == [9.0, 0.1, 0.3, 9.0, 0.5]


def test_reading_while_writing(writer: RunWriter) -> None:
    seen = 0
    for step in range(300):
        writer.frame(STEP, step, np.array([float(step)]))
        if step % 20 == 0:
            assert writer.flush()
            loss = load_record(writer.path).channels[LOSS]
            assert loss.steps.tolist() == list(range(step + 1))
            assert (loss.values == loss.steps).all()
            seen += 1
    assert seen == 15


def test_an_open_reader_sees_what_came_later_and_does_not_stop_the_writer(
    writer: RunWriter,
) -> None:
    with RunFile(writer.path) as run:
        assert run.record().channels == {}
        writer.frame(STEP, 0, np.ones(1))
        assert writer.flush()
        assert len(run.record().channels[LOSS]) == 1
        writer.close()
        assert writer.error is None
        assert len(run.record().channels[LOSS]) == 1
    assert len(load_record(writer.path).channels[LOSS]) == 1


def test_size_counts_the_log(finished: Path, writer: RunWriter, tmp_path: Path) -> None:
    with RunFile(finished) as run:
        assert run.size == finished.stat().st_size
    path = crashed(finished, tmp_path / "crash")
    with RunFile(path) as run:
        assert run.size == path.stat().st_size + Path(f"{path}-wal").stat().st_size


def test_reading_changes_nothing(finished: Path, tmp_path: Path) -> None:
    path = crashed(finished, tmp_path / "crash")
    for file in (finished, path, Path(f"{path}-wal")):
        before, stamp = file.read_bytes(), file.stat().st_mtime_ns
        read_all(path if "crash" in str(file) else finished)
        assert file.read_bytes() == before
        assert file.stat().st_mtime_ns == stamp
    assert len(load_record(path).channels[LOSS]) == 100
    assert [file.name for file in finished.parent.glob("r1*")] == ["r1.ndbg"]


def test_reading_leaves_nothing_behind(finished: Path) -> None:
    change(finished, "PRAGMA journal_mode = WAL")  # as when a reader was busy at the end
    for _ in range(2):
        read_all(finished)
    assert [file.name for file in finished.parent.iterdir()] == ["r1.ndbg"]


def test_a_record_is_one_picture_while_channels_and_frames_come(path: Path, fact: RunFact) -> None:
    writer = RunWriter(path, fact)
    done = threading.Event()

    def write() -> None:
        for step in range(4000):
            width = 1 + step // 20
            channel = Channel(Kind.MODULE, str(width - 1), "act_rms")
            assert writer.channels(LOOK, [channel]) == [width - 1]
            writer.frame(LOOK, step, np.full(width, step, np.float32))
            if step % 5 == 0:
                writer.flush()
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    pictures = 0
    while not done.is_set():
        record = load_record(path)
        pictures += 1
        for channel, series in record.channels.items():
            assert series.steps[0] == 20 * int(channel.name)
    thread.join()
    writer.close()
    assert pictures > 10


READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from neuraldbg.store.reader import load_record
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = Path(sys.argv[1])
try:
    (path.parent / "probe").touch()
except PermissionError:
    (series,) = [s for c, s in load_record(path).channels.items() if c.metric == "value"]
    print(len(series))
"""


@pytest.mark.parametrize("state", ["finished", "kept log", "crashed", "crashed, index kept"])
def test_a_read_only_folder(finished: Path, tmp_path: Path, state: str) -> None:
    path = finished
    if "crashed" in state:
        path = crashed(finished, tmp_path / "crash")
    if state == "crashed, index kept":
        read_all(path)
        assert Path(f"{path}-shm").exists()
    if state == "kept log":  # closed, but a reader kept the log from being folded in
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    above = path.parent.parents if os.geteuid() == 0 else []  # root becomes somebody else
    modes = [(folder, stat.S_IMODE(folder.stat().st_mode)) for folder in [path.parent, *above]]
    for folder, mode in modes:
        if mode & 0o055 != 0o055:
            folder.chmod(mode | 0o055)
    path.parent.chmod(0o555)
    try:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", READ_AS_NOBODY, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        for folder, mode in modes:
            if stat.S_IMODE(folder.stat().st_mode) != mode:
                folder.chmod(mode)
    assert result.stderr == ""
    assert result.stdout == ("100\n" if "crashed" in state else "50\n")
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("neuraldbg-*/r.ndbg"))  # noqa: S108


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"No run file at .*x\.ndbg: it does not exist.*list"):
        RunFile(tmp_path / "x.ndbg")
    with pytest.raises(RunFileError, match="it is a folder"):
        RunFile(tmp_path)


def test_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.ndbg"
    path.touch()
    with pytest.raises(RunFileError, match=r"x\.ndbg is empty \(0 bytes\).*again"):
        RunFile(path)


@pytest.mark.parametrize("content", [b"hello", b"\0" * 5000, os.urandom(5000)])
def test_not_a_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ndbg"
    path.write_bytes(content)
    with pytest.raises(RunFileError, match="not a NeuralDBG run file: file is not a database"):
        RunFile(path)


def test_another_program(tmp_path: Path) -> None:
    path = change(tmp_path / "x.ndbg", "CREATE TABLE t(a)", "PRAGMA application_id = 99")
    with pytest.raises(RunFileError, match=r"another program \(application id 99\)"):
        RunFile(path)


def test_a_newer_schema(finished: Path) -> None:
    change(finished, "PRAGMA user_version = 7")
    with pytest.raises(RunFileError, match=r"schema version 7.*reads up to 1.*pip install"):
        RunFile(finished)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("PRAGMA user_version = 0", "there never was a version 0"),
        ("DROP TABLE frame", "there is no table frame"),
        ("DELETE FROM fact", "those of the run are missing"),
        ("UPDATE fact SET json = '{' WHERE key = 'run'", "run: not valid JSON"),
        ("UPDATE fact SET json = x'ff' WHERE key = 'run'", "run: expected JSON text"),
        ("UPDATE fact SET json = CAST(x'ff' AS TEXT)", "decode"),
        ("INSERT INTO fact VALUES('modules', '{}')", "modules: expected a list"),
        ("UPDATE channel SET position = 7 WHERE name = 'm1'", "not numbered from 0"),
        ("UPDATE channel SET kind = 'soul' WHERE name = 'm1'", "unknown kind 'soul'"),
        ("UPDATE channel SET kind = NULL WHERE name = 'm1'", "unknown kind None"),
        ("UPDATE channel SET name = NULL WHERE name = 'm1'", "expected text, found None"),
        ("DELETE FROM channel", "8 bytes for 0 channels"),
        ("""UPDATE frame SET "values" = x'00' WHERE step = 3""", "1 bytes for"),
        ("""UPDATE frame SET "values" = NULL WHERE step = 3""", "not made of numbers"),
        ("UPDATE frame SET step = 'x' WHERE step = 3", "not made of numbers"),
        ("UPDATE frame SET present = x'0102' WHERE step = 5", "does not have 1 bytes"),
        ("UPDATE event SET json = '{}'", "event e1.id: missing"),
        ("UPDATE diagnosis SET json = 'null'", "diagnosis: not an object"),
        ("UPDATE diagnosis SET json = '{\"a\": NaN}'", "diagnosis: not valid JSON"),
        ("INSERT INTO gap VALUES(1, 'b')", "gap: expected text|ok"),
    ],
)
def test_content_that_no_writer_leaves(finished: Path, statement: str, complaint: str) -> None:
    change(finished, statement)
    if complaint.endswith("|ok"):  # a column of text turns numbers into text
        read_all(finished)
        return
    with pytest.raises(RunFileError, match=rf"r1\.ndbg is damaged: .*{complaint}.*again"):
        read_all(finished)


def test_a_view_in_the_place_of_a_table_is_never_run(finished: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i, i FROM n"
    change(finished, "DROP TABLE gap", f"CREATE VIEW gap(what, why) AS {endless}")
    with pytest.raises(RunFileError, match="there is no table gap"):
        RunFile(finished)


def test_a_file_held_by_another_program(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuraldbg.store.opening._LOCK_SECONDS", 0.01)
    with closing(sqlite3.connect(finished, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RunFileError, match=r"cannot be opened: database is locked.*again"):
            read_all(finished)
    read_all(finished)


def survives(path: Path) -> bool:
    """Whether a mutant can be read; anything but a clear refusal fails the test."""
    try:
        read_all(path)
    except RunFileError as error:
        assert str(path) in str(error)  # noqa: PT017
        return False
    return True


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 3, 20])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def smear(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    stop = min(len(data), start + chance.randrange(1, 3000))
    data[start:stop] = chance.choice([bytes(stop - start), chance.randbytes(stop - start)])


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def head(data: bytearray, chance: random.Random) -> None:
    for _ in range(3):
        data[chance.randrange(16, 100)] = chance.randrange(256)


def header_of_a_page(data: bytearray, chance: random.Random) -> None:
    page = chance.randrange(len(data) // PAGE) * PAGE
    for _ in range(4):
        data[page + chance.randrange(40)] = chance.randrange(256)


def swap(data: bytearray, chance: random.Random) -> None:
    one, two = (chance.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    data[one : one + PAGE], data[two : two + PAGE] = data[two : two + PAGE], data[one : one + PAGE]


@pytest.mark.parametrize("damage", [flip, smear, cut, head, header_of_a_page, swap])
def test_damage_is_refused_or_read(
    finished: Path, tmp_path: Path, damage: Callable[[bytearray, random.Random], None]
) -> None:
    chance = random.Random(20261202)  # noqa: S311
    original = finished.read_bytes()
    mutant = tmp_path / "mutant.ndbg"
    refused = 0
    for _ in range(100):
        data = bytearray(original)
        damage(data, chance)
        mutant.write_bytes(data)
        refused += not survives(mutant)
    assert refused > 10  # the damage does reach something


def test_damage_to_the_log_costs_commits_at_most(finished: Path, tmp_path: Path) -> None:
    chance = random.Random(20261202)  # noqa: S311
    path = crashed(finished, tmp_path / "crash")
    log = Path(f"{path}-wal")
    original = log.read_bytes()
    for i in range(60):
        data = bytearray(original)
        (flip, smear, cut)[i % 3](data, chance)
        Path(f"{path}-shm").unlink(missing_ok=True)
        log.write_bytes(data)
        assert survives(path)


@pytest.mark.parametrize("share", [8])
def test_loading_is_quick(path: Path, fact: RunFact, share: int) -> None:
    # An eighth of a long run of a large model, which is to load in about two seconds.
    writer = RunWriter(path, fact)
    writer.channels(STEP, [Channel(Kind.RUN, str(i), "x") for i in range(8)])
    wide = [Channel(Kind.MODULE, f"m{i // 12}", str(i % 12)) for i in range(12_000)]
    writer.channels(LOOK, wide)
    for step in range(2000 // share):
        writer.frame(LOOK, step, np.full(12_000, step, np.float32))
        if step % 100 == 0:
            writer.flush()
    for step in range(100_000 // share):
        writer.frame(STEP, step, np.full(8, step))
    writer.close()
    times = []
    for _ in range(3):
        start = time.process_time()
        record = load_record(path)
        times.append(time.process_time() - start)
    assert len(record.channels) == 12_008
    assert len(record.channels[wide[-1]]) == 2000 // share
    assert record.facts.gaps == ()
    assert min(times) < 2.0
