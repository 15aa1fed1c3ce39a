"""Rows of numbers as bytes: exact, and never a false zero or infinity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.errors import RunFileError
from neuraldbg.store.frames import Frame, Mask, Numbers, Row, merge, pack, stack

KINDS = {STEP: ("<f8", st.floats()), LOOK: ("<f4", st.floats(width=32))}
SMALL = np.finfo(np.float32)


@st.composite
def frames(draw: st.DrawFn, stream: str, step: int = 0) -> Frame:
    width = draw(st.integers(0, 20))
    kind, numbers = KINDS[stream]
    values = draw(hnp.arrays(kind, width, elements=numbers))
    present = draw(st.none() | hnp.arrays(bool, width))
    return Frame(stream, step, values, present)


def known(frame: Frame) -> Mask:
    return np.ones(len(frame.values), bool) if frame.present is None else frame.present


def row(frame: Frame) -> Row:
    return (frame.step, *pack(frame))


@pytest.mark.parametrize("stream", [STEP, LOOK])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_rows_come_back_bit_for_bit(stream: str, data: st.DataObject) -> None:
    given_frames = [data.draw(frames(stream, step)) for step in range(data.draw(st.integers(0, 6)))]
    block = stack(stream, [row(frame) for frame in given_frames], 20)
    assert block.steps.tolist() == list(range(len(given_frames)))
    for i, frame in enumerate(given_frames):
        width = len(frame.values)
        mask = known(frame)
        assert (block.present[:width, i] == mask).all()
        assert not block.present[width:, i].any()
        back: Numbers = block.values[:width, i].astype(frame.values.dtype)
        assert back[mask].tobytes() == frame.values[mask].tobytes()


@pytest.mark.parametrize("stream", [STEP, LOOK])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_newly_present_values_win(stream: str, data: st.DataObject) -> None:
    first, second = data.draw(frames(stream, 7)), data.draw(frames(stream, 7))
    expected = {int(i): first.values[i] for i in np.flatnonzero(known(first))}
    expected |= {int(i): second.values[i] for i in np.flatnonzero(known(second))}
    block = stack(stream, [row(merge(row(first), second))])
    measured = np.flatnonzero(block.present[:, 0])
    assert measured.tolist() == sorted(expected)
    for i in measured:
        assert np.array_equal(block.values[i, 0], float(expected[int(i)]), equal_nan=True)


def test_all_present_costs_no_mask() -> None:
    frame = Frame(LOOK, 0, np.ones(9, np.float32), np.ones(9, bool))
    assert pack(frame) == (frame.values.tobytes(), None)


def test_a_signalling_nan_is_a_nan_without_a_warning() -> None:
    signal = np.array([0x7F800001, 0x3F800000], "<u4").view("<f4")
    frame = Frame(LOOK, 0, signal, None)
    for block in (stack(LOOK, [row(frame)]), stack(LOOK, [row(merge(row(frame), frame))])):
        assert np.isnan(block.values[0, 0])
        assert block.values[1, 0] == 1.0


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float64, 8, elements=st.floats()))
def test_a_cast_invents_no_evidence(values: Numbers) -> None:
    block = stack(LOOK, [row(Frame(LOOK, 0, values, None))])
    stored = block.values[:, 0]
    for same in (np.isnan, np.isfinite, np.sign):
        assert np.array_equal(same(stored), same(values), equal_nan=True)
    usual = (np.abs(values) <= SMALL.max) & (np.abs(values) >= SMALL.tiny)
    assert np.allclose(stored[usual], values[usual], rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(3, b"\0" * 9, None)], "frame step/3: 9 bytes for 2 channels"),
        ([(3, b"\0" * 24, None)], "frame step/3: 24 bytes for 2 channels"),
        ([(3, b"\0" * 16, b"")], "masks of stream step: one does not have 1 bytes"),
        ([(3, b"\0" * 16, b"ab")], "masks of stream step: one does not have 1 bytes"),
        ([(3, "text", None)], "frame 3: not made of numbers"),
        ([(3, None, None)], "frame 3: not made of numbers"),
        ([(3.5, b"", None)], "frame 3.5: not made of numbers"),
        ([(3, b"", 1)], "mask of frame 3: not made of bits"),
    ],
)
def test_impossible_rows_are_refused(rows: list[Row], complaint: str) -> None:
    with pytest.raises(RunFileError, match=complaint):
        stack(STEP, rows, 2)
