"""Rows of numbers as bytes, and back.

Little-endian, whatever the machine; float64 for the few numbers of every step, float32 for
the many of a look. A cast to float32 never invents evidence: a finite number stays finite
and a number that is not zero stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.store.faults import refuse

Mask = NDArray[np.bool_]
Numbers = NDArray[Any]
Row = tuple[int, bytes, bytes | None]  # step, values, present: a row of the table `frame`

DTYPES: Final[dict[str, np.dtype[Any]]] = {STEP: np.dtype("<f8"), LOOK: np.dtype("<f4")}
_BITS: Final = "little"  # bit i of byte i // 8 is channel i


class Frame(NamedTuple):
    """The numbers of one stream at one step; `present` None means all of them."""

    stream: str
    step: int
    values: Numbers
    present: Mask | None


class Block(NamedTuple):
    """Several frames of a stream: `values` and `present` have shape (channels, frames)."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    present: Mask


def pack(frame: Frame) -> tuple[bytes, bytes | None]:
    """The two blobs of a frame."""
    values = _cast(frame.values, DTYPES[frame.stream])
    if frame.present is None or frame.present.all():
        return values.tobytes(), None
    known = np.where(frame.present, values, values.dtype.type(0))
    return known.tobytes(), np.packbits(frame.present, bitorder=_BITS).tobytes()


def merge(old: Row, new: Frame) -> Frame:
    """A second frame for a step laid over the first: what is newly present wins."""
    block = stack(new.stream, [old])
    width = max(len(block.values), len(new.values))
    values = np.zeros(width, np.float64)
    present = np.zeros(width, np.bool_)
    values[: len(block.values)] = block.values[:, 0]
    present[: len(block.present)] = block.present[:, 0]
    fresh = np.ones(len(new.values), np.bool_) if new.present is None else new.present
    with np.errstate(invalid="ignore"):
        values[: len(new.values)][fresh] = new.values[fresh]
    present[: len(new.values)] |= fresh
    return Frame(new.stream, new.step, values, present)


def stack(stream: str, rows: Sequence[Row], width: int | None = None) -> Block:
    """Rows of the table as one block.

    Args:
        stream: The stream they belong to.
        rows: In order of step.
        width: Number of channels; the widest row's if not given.

    Raises:
        RunFileError: A row that no writer of ours would have made.
    """
    _check_types(rows)
    itemsize = DTYPES[stream].itemsize
    if width is None:
        width = max((len(row[1]) // itemsize for row in rows), default=0)
    values = np.zeros((width, len(rows)), np.float64)
    present = np.zeros((width, len(rows)), np.bool_)
    start = 0
    for length, run in groupby(rows, key=lambda row: len(row[1])):
        group = list(run)
        count = length // itemsize
        if length % itemsize or count > width:
            refuse(f"frame {stream}/{group[0][0]}", f"{length} bytes for {width} channels")
        stop = start + len(group)
        if count:
            joined = b"".join(row[1] for row in group)
            block = np.frombuffer(joined, DTYPES[stream]).reshape(len(group), count)
            with np.errstate(invalid="ignore"):  # signalling NaNs are NaNs
                values[:count, start:stop] = block.T
        present[:count, start:stop] = _masks(stream, group, count).T
        start = stop
    return Block(np.array([row[0] for row in rows], np.int64), values, present)


def _masks(stream: str, group: Sequence[Row], count: int) -> Mask:
    masks = np.ones((len(group), count), np.bool_)
    partial = [i for i, row in enumerate(group) if row[2] is not None]
    packed = [group[i][2] or b"" for i in partial]
    size = (count + 7) // 8
    if any(len(blob) != size for blob in packed):
        refuse(f"masks of stream {stream}", f"one does not have {size} bytes")
    if partial:
        bits = np.frombuffer(b"".join(packed), np.uint8).reshape(len(partial), size)
        masks[partial] = np.unpackbits(bits, axis=1, count=count, bitorder=_BITS)
    return masks


def _check_types(rows: Iterable[Row]) -> None:
    # SQLite columns hold any type; a flipped bit can turn a blob into text.
    for step, values, present in rows:
        if type(step) is not int or type(values) is not bytes:
            refuse(f"frame {step!r:.20}", "not made of numbers")
        if present is not None and type(present) is not bytes:
            refuse(f"mask of frame {step}", "not made of bits")


def _cast(values: Numbers, kind: np.dtype[Any]) -> Numbers:
    if values.dtype == kind:
        return values
    with np.errstate(all="ignore"):
        cast = values.astype(kind)
    limits = np.finfo(kind)
    over = np.isinf(cast) & np.isfinite(values)
    cast[over] = np.copysign(limits.max, values[over])
    under = (cast == 0) & (values != 0)
    cast[under] = np.copysign(limits.tiny, values[under])
    return cast
