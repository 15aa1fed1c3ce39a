"""Making room in a long run: old readings grow sparse, the beginning and the recent past stay.

Of each stream the first frames and the newest quarter are kept. In between every second
frame goes, but one that holds a non-finite value, or the largest loss of its
neighbourhood, is preferred over its partner, so that spikes survive. Whole ranges are
deleted and the survivors put back, because SQLite frees only pages that become empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from neuraldbg.core.metrics import STEP
from neuraldbg.store.frames import Block, Row, stack
from neuraldbg.store.schema import size, transaction

HEAD: Final = 200  # frames; most faults show in the first steps
_TAIL: Final = 4  # the newest one in so many frames stays
# One peak is kept per so many frames. Keeping the larger of every pair instead would lift
# the thinned part of a noisy loss above the rest, and look like a change that never was.
NEIGHBOURHOOD: Final = 16
_CHUNK_BYTES: Final = 1 << 20  # one transaction; short enough not to hold up a commit


def thin(connection: sqlite3.Connection, target: int) -> Iterator[None]:
    """Remove frames until at most `target` bytes are in use, or none can be spared.

    Yields after each of many short transactions, so that the caller can do other work.
    """
    head = HEAD
    while size(connection).used > target and (stream := heaviest(connection)) is not None:
        steps = middle(_steps(connection, stream), head)
        if len(steps) >= 2:
            yield from _halve(connection, stream, steps)
        elif head:
            head //= 2  # frames so wide that the beginning itself must give way
        else:
            return


def heaviest(connection: sqlite3.Connection) -> str | None:
    """The stream that takes up most room."""
    query = 'SELECT stream, SUM(LENGTH("values")) FROM frame GROUP BY stream ORDER BY 2 DESC'
    row = connection.execute(query).fetchone()
    return None if row is None else str(row[0])


def middle(steps: Sequence[int], head: int) -> Sequence[int]:
    """The steps between the beginning and the recent past."""
    return steps[head : len(steps) - max(1, len(steps) // _TAIL)]


def survivors(stream: str, rows: Sequence[Row]) -> list[Row]:
    """One of every two rows (in order of step), the more telling one of each pair."""
    chosen = np.arange(0, len(rows), 2)
    if stream == STEP:
        rank = _ranks(stack(stream, rows))
        pairs = len(rows) // 2
        chosen[:pairs] += rank[1::2] > rank[: 2 * pairs : 2]
    return [rows[int(i)] for i in chosen]


def _ranks(block: Block) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    # 2: holds a non-finite value; 1: the peak of channel 0 (the loss) nearby; 0: neither.
    rank = np.zeros(len(block.steps), np.int64)
    if len(block.values):
        height = np.where(block.present[0], np.abs(block.values[0]), -1.0)
        for start in range(0, len(height), NEIGHBOURHOOD):
            rank[start + np.argmax(height[start : start + NEIGHBOURHOOD])] = 1
    rank[(~np.isfinite(block.values) & block.present).any(axis=0)] = 2
    return rank


def _halve(connection: sqlite3.Connection, stream: str, steps: Sequence[int]) -> Iterator[None]:
    chunk = _chunk(connection, stream)
    for start in range(0, len(steps), chunk):
        part = steps[start : start + chunk]
        _rewrite(connection, stream, part[0], part[-1])
        yield


def _rewrite(connection: sqlite3.Connection, stream: str, first: int, last: int) -> None:
    there = "FROM frame WHERE stream = ? AND step BETWEEN ? AND ?"
    span = (stream, first, last)
    with transaction(connection):
        rows = connection.execute(
            f'SELECT step, "values", present {there} ORDER BY step', span
        ).fetchall()
        connection.execute(f"DELETE {there}", span)
        connection.executemany(
            "INSERT INTO frame VALUES(?, ?, ?, ?)",
            ((stream, *row) for row in survivors(stream, rows)),
        )


def _chunk(connection: sqlite3.Connection, stream: str) -> int:
    query = 'SELECT MAX(LENGTH("values")) FROM frame WHERE stream = ?'
    (widest,) = connection.execute(query, (stream,)).fetchone()
    frames = _CHUNK_BYTES // (int(widest) + 1)
    return max(2, frames // NEIGHBOURHOOD * NEIGHBOURHOOD)


def _steps(connection: sqlite3.Connection, stream: str) -> list[int]:
    query = "SELECT step FROM frame WHERE stream = ? ORDER BY step"
    return [step for (step,) in connection.execute(query, (stream,))]
