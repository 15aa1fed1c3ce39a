"""Writing: what goes in comes out, calls are cheap, and failures stay inside."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import (
    Channel,
    Facts,
    Gap,
    Kind,
    LossFact,
    ModuleFact,
    OptimizerFact,
    Overhead,
    ParamFact,
    RunFact,
)
from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.errors import RunFileError, UsageError
from neuraldbg.store import codec
from neuraldbg.store.forks import no_fork
from neuraldbg.store.frames import Mask, Numbers
from neuraldbg.store.inbox import DROPPED
from neuraldbg.store.reader import RunFile, load_record
from neuraldbg.store.writer import RunWriter


def channel(stream: str, position: int) -> Channel:
    return Channel(Kind.PARAM, f"{stream}.{position}.weight", "grad_norm")


KINDS = {STEP: ("f8", st.floats()), LOOK: ("f4", st.floats(width=32))}


@st.composite
def operations(draw: st.DrawFn) -> list[tuple[str, int, int, Any, Any]]:
    """Frames of both streams at random steps, over ever more channels."""
    made = []
    width = {STEP: 0, LOOK: 0}
    for _ in range(draw(st.integers(0, 12))):
        stream = draw(st.sampled_from([STEP, LOOK]))
        width[stream] += draw(st.integers(0, 3))
        length = draw(st.integers(0, width[stream]))
        kind, numbers = KINDS[stream]
        values = draw(hnp.arrays(kind, length, elements=numbers))
        present = draw(st.none() | hnp.arrays(bool, length))
        made.append((stream, draw(st.integers(-3, 9)), width[stream], values, present))
    return made


@settings(max_examples=30, deadline=None)
@given(operations(), st.booleans())
def test_frames_come_back_as_they_went_in(
    made: list[tuple[str, int, int, Any, Any]],
    flush: bool,
) -> None:
    expected: dict[Channel, dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder) / "r.ndbg", RunFact(id="r"))
        for stream, step, width, values, present in made:
            channels = [channel(stream, i) for i in range(width)]
            assert writer.channels(stream, channels) == list(range(width))
            writer.frame(stream, step, values, present)
            for i in np.flatnonzero(np.ones(len(values), bool) if present is None else present):
                expected.setdefault(channels[i], {})[step] = float(values[i])
            if flush:
                assert writer.flush()
        writer.close()
        assert writer.error is None
        record = load_record(writer.path)
    assert record.channels.keys() == expected.keys()
    for key, readings in expected.items():
        series = record.channels[key]
        steps = sorted(readings)
        assert series.steps.tolist() == steps
        numbers = np.array([readings[step] for step in steps])
        assert np.array_equal(series.values, numbers, equal_nan=True)
        assert np.array_equal(np.signbit(series.values), np.signbit(numbers))


def test_facts_events_and_gaps_come_back(
    writer: RunWriter, fact: RunFact, event: SemanticEvent
) -> None:
    done = replace(fact, steps=7, finished="ok", notes={"exception": "nan"})
    modules = (ModuleFact("", "Net", leaf=False), ModuleFact("a", "Linear", order=0))
    params = (ParamFact("a.weight", (2, 3), init_rms=float("inf")),)
    optimizers = (OptimizerFact(0, "AdamW", ({"lr": 1e-3, "fused": None},), 2),)
    losses = (LossFact(ops=("NllLoss",), broadcast=((32, 1), (32,))),)
    writer.run(done)
    writer.modules(modules[:1])
    writer.modules(modules)
    writer.params(params)
    writer.optimizers(optimizers)
    writer.losses(losses)
    writer.overhead(Overhead(0.01, 2.5))
    writer.event(replace(event, step=3))
    writer.event(event)
    writer.event(replace(event, id="e0", step=2))
    for gap in (Gap("z", "first"), Gap("a", "second"), Gap("z", "first")):
        writer.gap(gap)
        assert writer.flush()
    writer.diagnosis('{"verdict": "suspect"}')
    writer.diagnosis('{"verdict": "failed"}')
    writer.close()
    gaps = (Gap("z", "first"), Gap("a", "second"))
    with RunFile(writer.path) as run:
        expected = Facts(done, modules, params, optimizers, losses, gaps, Overhead(0.01, 2.5))
        assert run.facts() == run.record().facts == expected
        assert run.gaps() == gaps
        # as JSON, because NaN does not equal itself
        expected_events = (replace(event, id="e0", step=2), event)
        assert codec.encode(run.events()) == codec.encode(expected_events)
        assert run.diagnosis_json() == '{"verdict": "failed"}'


def test_a_fresh_file_knows_its_run_and_nothing_else(writer: RunWriter, fact: RunFact) -> None:
    with RunFile(writer.path) as run:
        assert run.record().facts == Facts(fact)
        assert run.record().channels == {}
        assert run.events() == ()
        assert run.gaps() == ()
        assert run.diagnosis_json() is None


def test_channels_keep_their_place(writer: RunWriter) -> None:
    a, b, c = (Channel(Kind.RUN, name, "x") for name in "abc")
    assert writer.channels(STEP, [a, b]) == [1, 2]  # after the loss
    assert writer.channels(STEP, [c, a, c]) == [3, 1, 3]
    assert writer.channels(LOOK, [b]) == [4]


def test_a_frame_is_copied(writer: RunWriter) -> None:
    values, present = np.array([1.0]), np.array([True])
    writer.frame(STEP, 0, values, present)
    values[0], present[0] = 2.0, False
    writer.close()
    (series,) = load_record(writer.path).channels.values()
    assert series.values.tolist() == [1.0]


def test_names_may_hold_any_character(writer: RunWriter) -> None:
    names = ["", "a.b", "naïve\0\U0001f600", "\ud800", "'; DROP TABLE frame; --"]
    writer.channels(LOOK, [Channel(Kind.MODULE, name, "act_rms") for name in names])
    writer.frame(LOOK, 0, np.ones(9, np.float32))
    writer.gap(Gap("\ud800", "why"))
    writer.diagnosis('{"a": "\ud800"}')
    writer.close()
    assert writer.error is None
    read = [c.name for c in load_record(writer.path).channels]
    assert read[4:] == [*names[:3], "\\ud800", names[4]]


@pytest.mark.parametrize(
    ("stream", "values", "present"),
    [
        ("glance", np.zeros(1), None),
        (STEP, np.zeros(2), None),
        (STEP, np.zeros((1, 1)), None),
        (LOOK, np.zeros(2), np.zeros(3, bool)),
    ],
)
def test_a_frame_of_the_wrong_shape_is_refused(
    writer: RunWriter, stream: str, values: Numbers, present: Mask | None
) -> None:
    with pytest.raises(UsageError, match=stream):
        writer.frame(stream, 0, values, present)


def test_an_unknown_stream_has_no_channels(writer: RunWriter) -> None:
    with pytest.raises(UsageError, match="no stream 'glance'; the streams are step, look"):
        writer.channels("glance", [])


def test_closing_leaves_a_single_file_and_ends_the_thread(writer: RunWriter) -> None:
    writer.frame(STEP, 0, np.ones(1))
    assert any(thread.name == "neuraldbg-writer" for thread in threading.enumerate())
    writer.close()
    writer.close()
    assert [file.name for file in writer.path.parent.iterdir()] == ["r1.ndbg"]
    assert not any(thread.name == "neuraldbg-writer" for thread in threading.enumerate())
    assert repr(writer).endswith("r1.ndbg', closed)")


def test_nothing_is_written_after_closing(writer: RunWriter, event: SemanticEvent) -> None:
    writer.close()
    before = writer.path.read_bytes()
    writer.frame(STEP, 0, np.ones(1))
    writer.event(event)
    writer.run(RunFact(id="other"))
    assert writer.channels(STEP, [Channel(Kind.RUN, "", "x")]) == [1]
    assert writer.flush(0.1)
    assert writer.path.read_bytes() == before


def test_what_is_queued_during_the_last_commit_is_not_lost(writer: RunWriter) -> None:
    with no_fork():  # the thread stands still, with the first frame in its hands
        writer.frame(STEP, 0, np.ones(1))
        assert not writer.flush(0.5)
        writer.frame(STEP, 1, np.ones(1))
        writer.close(timeout=0)
    writer.close()
    (series,) = load_record(writer.path).channels.values()
    assert series.steps.tolist() == [0, 1]


def test_commits_come_by_themselves(writer: RunWriter) -> None:
    writer.frame(STEP, 0, np.ones(1))
    deadline = time.monotonic() + 10
    while not load_record(writer.path).channels:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_call_costs_microseconds(writer: RunWriter) -> None:
    values, count = np.zeros(4, np.float32), 2000
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for step in range(count):
            writer.frame(LOOK, step, values)
        times.append((time.perf_counter() - start) / count)
        writer.flush()
    assert min(times) < 50e-6


def test_what_comes_too_fast_is_dropped_and_said(path: Path, fact: RunFact) -> None:
    writer = RunWriter(path, fact, max_bytes=100_000)
    writer.channels(STEP, [Channel(Kind.LOSS, "loss", "value")])
    with no_fork():  # the thread stands still
        for step in range(1000):
            writer.frame(STEP, step, np.ones(1))
    writer.close()
    with RunFile(path) as run:
        record = run.record()
    assert record.facts.gaps == (DROPPED,)
    (series,) = record.channels.values()
    assert series.steps[0] == 0
    assert 20 < len(series) < 200


def test_an_older_run_is_replaced(finished: Path) -> None:
    RunWriter(finished, RunFact(id="new")).close()
    record = load_record(finished)
    assert record.facts == Facts(RunFact(id="new"))
    assert record.channels == {}


@pytest.mark.parametrize("blocked", ["folder is a file", "path is a folder", "foreign file"])
def test_a_place_that_cannot_be_written_is_an_error_at_once(tmp_path: Path, blocked: str) -> None:
    path = tmp_path / "runs" / "r.ndbg"
    if blocked == "folder is a file":
        path.parent.write_text("text")
    elif blocked == "path is a folder":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.write_text("text")
    called: list[Exception] = []
    with pytest.raises(RunFileError, match=r"r\.ndbg") as caught:
        RunWriter(path, RunFact(id="r"), on_error=called.append)
    assert "NEURALDBG_DIR" in str(caught.value) or "not a NeuralDBG run file" in str(caught.value)
    assert called == []


def test_a_failure_stays_inside_and_is_told_once(path: Path, fact: RunFact) -> None:
    called: list[Exception] = []

    def tell(error: Exception) -> None:
        called.append(error)
        writer.close()  # allowed, though it cannot wait
        assert not writer.flush()
        message = "a callback's own bug"
        raise RuntimeError(message)

    writer = RunWriter(path, fact, on_error=tell)
    writer.channels(STEP, [Channel(Kind.LOSS, "loss", "value")])
    writer.frame(STEP, 0, np.ones(1))
    assert writer.flush()
    writer.frame(STEP, 2**70, np.ones(1))  # no database holds such a step
    assert not writer.flush()
    writer.frame(STEP, 1, np.ones(1))
    writer.close()
    assert called == [writer.error]
    assert isinstance(writer.error, OverflowError)
    assert "failed" in repr(writer)
    (series,) = load_record(path).channels.values()
    assert series.steps.tolist() == [0]
