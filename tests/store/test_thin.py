"""Thinning: the file stays bounded, and what tells the story stays in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Channel, Kind, RunFact
from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.core.record import Record
from neuraldbg.store.frames import Frame, Row, pack
from neuraldbg.store.ledger import FULL, THINNED
from neuraldbg.store.reader import RunFile, load_record
from neuraldbg.store.schema import create, size
from neuraldbg.store.thin import HEAD, NEIGHBOURHOOD, middle, survivors, thin
from neuraldbg.store.writer import RunWriter

LOSS = Channel(Kind.LOSS, "loss", "value")
LIMIT = 1_000_000  # a hundredth of the usual limit, for a hundredth of a million steps
STEPS = 20_000


def rows(stream: str, values: Iterable[Iterable[float]]) -> list[Row]:
    return [
        (step, *pack(Frame(stream, step, np.array(list(row)), None)))
        for step, row in enumerate(values)
    ]


def kept(stream: str, values: Iterable[Iterable[float]]) -> list[int]:
    return [row[0] for row in survivors(stream, rows(stream, values))]


def on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.iterdir() if "-shm" not in file.name)


def test_every_second_frame_goes() -> None:
    assert kept(LOOK, [[i] for i in range(7)]) == [0, 2, 4, 6]
    assert kept(STEP, [[0.0]] * 6) == [0, 2, 4]
    assert kept(STEP, []) == []


def test_the_peak_of_a_neighbourhood_beats_its_partner_and_no_more() -> None:
    loss = [1.0, 1.1] * NEIGHBOURHOOD  # two neighbourhoods; the larger is always second
    loss[5] = -9.0
    assert kept(STEP, [[x] for x in loss]) == [0, 2, 5, *range(6, 16, 2), 17, *range(18, 32, 2)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_a_nonfinite_frame_beats_a_peak(bad: float, where: int) -> None:
    values = [[1.0, 0.0] for _ in range(8)]
    values[4][0] = 50.0
    values[5][where] = bad
    assert kept(STEP, values) == [0, 2, 5, 6]


def test_the_first_of_two_nonfinite_frames_stays() -> None:
    assert kept(STEP, [[1.0], [np.nan], [np.nan], [np.nan], [np.inf]]) == [1, 2, 4]


def test_what_was_not_measured_is_no_spike() -> None:
    mask = np.array([False, True])
    frames = [Frame(STEP, i, np.array([np.nan, 1.0]), mask if i == 1 else None) for i in range(2)]
    frames[0] = Frame(STEP, 0, np.zeros(2), None)
    assert [row[0] for row in survivors(STEP, [(f.step, *pack(f)) for f in frames])] == [0]


@settings(deadline=None)
@given(st.integers(0, 3000))
def test_the_beginning_and_the_newest_quarter_are_spared(count: int) -> None:
    steps = range(count)
    going = middle(steps, HEAD)
    assert not set(going) & set(steps[:HEAD])
    assert not set(going) & set(steps[count - count // 4 :])
    assert count == 0 or count - 1 not in going


def drive(writer: RunWriter, steps: int = STEPS, every: int = 200) -> Iterator[int]:
    """A run of ten numbers a step; yields now and then."""
    channels = [LOSS, *(Channel(Kind.OPTIMIZER, f"0.{i}", "lr") for i in range(9))]
    writer.channels(STEP, channels)
    noise = np.random.default_rng(0).normal(1, 0.1, steps)
    for step in range(steps):
        row = np.full(10, noise[step])
        row[1] = step
        if step == steps // 4:
            row[0] = 100.0
        if step == steps // 3:
            row[5] = np.nan
        writer.frame(STEP, step, row)
        if step % every == 0:
            assert writer.flush()
            yield step
    writer.close()
    assert writer.error is None


def test_a_long_run_stays_small_and_keeps_its_story(
    path: Path, fact: RunFact, event: SemanticEvent
) -> None:
    writer = RunWriter(path, fact, max_bytes=LIMIT)
    writer.event(event)
    sizes = []
    for _ in drive(writer):
        sizes.append(path.stat().st_size)
        assert on_disk(path) < LIMIT + 8_400_000  # the log is small beside the usual limit
    sizes.append(path.stat().st_size)
    assert max(sizes) < LIMIT
    assert sizes[-1] > LIMIT / 2  # the room is used
    with RunFile(path) as run:
        record = run.record()
        assert [e.id for e in run.events()] == ["e1"]
    assert record.facts.gaps == (THINNED,)
    loss, count = record.channels[LOSS], len(record.channels[LOSS])
    assert count < STEPS / 2
    assert loss.steps[:HEAD].tolist() == list(range(HEAD))
    newest = loss.steps[-count // 5 :]
    assert (np.diff(newest) == 1).all()
    assert newest[-1] == STEPS - 1
    assert loss.values[loss.steps == STEPS // 4].tolist() == [100.0]
    broken = record.series(Kind.OPTIMIZER, "0.4", "lr")
    assert np.isnan(broken.values[broken.steps == STEPS // 3]).all()
    assert np.isnan(broken.values).sum() == 1
    ramp = record.series(Kind.OPTIMIZER, "0.0", "lr")
    assert (ramp.values == ramp.steps).all()  # no row was torn


def test_thinning_does_not_lift_a_noisy_loss(path: Path, fact: RunFact) -> None:
    # Keeping the larger of each pair would: by a standard deviation after three rounds.
    writer = RunWriter(path, fact, max_bytes=LIMIT // 2)
    for _ in drive(writer):
        pass
    loss = load_record(path).channels[LOSS]
    old = loss.between(HEAD, STEPS // 2)
    assert len(old) < STEPS / 8
    assert abs(old.median() - 1.0) < 0.03


def test_readers_meet_a_whole_record_at_any_time(path: Path, fact: RunFact) -> None:
    writer = RunWriter(path, fact, max_bytes=LIMIT // 4)
    for step in drive(writer, STEPS // 4, every=50):
        record = load_record(path)
        ramp = record.series(Kind.OPTIMIZER, "0.0", "lr")
        assert ramp.steps[-1] == step
        assert (ramp.values == ramp.steps).all()
        assert ramp.steps[: min(HEAD, step)].tolist() == list(range(min(HEAD, step)))


def test_events_are_taken_from_what_is_about_to_go(
    path: Path, fact: RunFact, event: SemanticEvent
) -> None:
    lengths = []

    def detect(record: Record) -> list[SemanticEvent]:
        lengths.append(len(record.channels[LOSS]))
        stored = int(record.channels[LOSS].steps[-1]) + 1
        assert record.facts.run == replace(fact, steps=stored)
        return [replace(event, id=f"thinned-{len(lengths)}", step=len(lengths))]

    writer = RunWriter(path, fact, max_bytes=LIMIT, before_thin=detect)
    for _ in drive(writer):
        pass
    assert len(lengths) > 1
    assert lengths[0] > LIMIT * 0.7 / 150
    with RunFile(path) as run:
        assert [e.id for e in run.events()] == [f"thinned-{i + 1}" for i in range(len(lengths))]


def test_a_detector_that_fails_is_a_gap(path: Path, fact: RunFact) -> None:
    def detect(record: Record) -> list[SemanticEvent]:
        raise ZeroDivisionError(record.facts.run.id)

    writer = RunWriter(path, fact, max_bytes=LIMIT, before_thin=detect)
    for _ in drive(writer):
        pass
    gaps = {gap.what: gap.why for gap in load_record(path).facts.gaps}
    assert gaps["events of old readings"] == "the detector failed: r1"
    assert path.stat().st_size < LIMIT


def test_wide_looks_give_way_even_in_the_beginning(path: Path, fact: RunFact) -> None:
    # 40 kB a frame: the first 200 alone would be four times the limit.
    writer = RunWriter(path, fact, max_bytes=2 * LIMIT)
    writer.channels(LOOK, [Channel(Kind.MODULE, f"m{i}", "act_rms") for i in range(10_000)])
    for step in range(120):
        writer.frame(LOOK, step, np.full(10_000, step, np.float32))
        assert writer.flush()
        assert path.stat().st_size < 2 * LIMIT
    writer.close()
    series = load_record(path).series(Kind.MODULE, "m7", "act_rms")
    assert series.steps[-1] == 119
    assert (series.values == series.steps).all()
    assert len(series) >= 8
    assert series.steps[0] == 0


def test_a_file_full_of_events_takes_no_more_frames(
    path: Path, fact: RunFact, event: SemanticEvent
) -> None:
    writer = RunWriter(path, fact, max_bytes=200_000)
    writer.channels(STEP, [LOSS])
    for i in range(500):
        writer.event(replace(event, id=f"e{i}"))
        writer.frame(STEP, i, np.ones(1))
        if i % 20 == 0:
            assert writer.flush()
    writer.close()
    with RunFile(path) as run:
        assert len(run.events()) == 500
        assert FULL in run.gaps()
        assert len(run.record().channels[LOSS]) < 500


def test_the_pages_of_frames_that_went_are_used_again(path: Path) -> None:
    with closing(create(path, {})) as connection:
        insert = "INSERT INTO frame VALUES(?, ?, ?, ?)"
        connection.execute("BEGIN")
        many = rows(STEP, np.ones((20_000, 10)))
        connection.executemany(insert, ((STEP, *row) for row in many))
        connection.execute("COMMIT")
        full = size(connection)
        for _ in thin(connection, full.used // 2):
            pass
        assert size(connection).used <= full.used // 2
        (left,) = connection.execute("SELECT COUNT(*) FROM frame").fetchone()
        assert left > 0.8 * 20_000 * size(connection).used / full.used  # no half-empty pages
        connection.execute("BEGIN")
        connection.executemany(
            insert, ((STEP, step + 20_000, *rest) for step, *rest in many[:9000])
        )
        connection.execute("COMMIT")
        assert size(connection).total == full.total
