"""From the tables of a run file to facts, series, events and gaps.

Works on any open connection: the reader's, and the writer's own before it thins. Every
function raises `RunFileError` for content that no writer of ours would have left.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

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
from neuraldbg.core.record import Record, Series
from neuraldbg.store import codec
from neuraldbg.store.amend import EXPERIMENTS
from neuraldbg.store.faults import refuse
from neuraldbg.store.frames import Block, stack

# Rows handled at once: enough to be quick, and 25 MB for 1,000 modules with 12 channels.
_ROWS: Final = 256


def record(connection: sqlite3.Connection) -> Record:
    """Facts and series as one consistent picture, also while the run is being written."""
    connection.execute("BEGIN")
    try:
        return Record(facts(connection), series(connection))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def facts(connection: sqlite3.Connection) -> Facts:
    """The static facts."""
    texts = dict(connection.execute("SELECT key, json FROM fact"))
    if "run" not in texts:
        refuse("facts", "those of the run are missing")
    run = codec.decode(RunFact, texts["run"], "run")
    return Facts(
        run=replace(run, steps=max(run.steps, _steps(connection))),
        modules=codec.decode_all(ModuleFact, texts.get("modules", "[]"), "modules"),
        params=codec.decode_all(ParamFact, texts.get("params", "[]"), "params"),
        optimizers=codec.decode_all(OptimizerFact, texts.get("optimizers", "[]"), "optimizers"),
        losses=codec.decode_all(LossFact, texts.get("losses", "[]"), "losses"),
        gaps=gaps(connection),
        overhead=codec.decode(Overhead, texts.get("overhead", "{}"), "overhead"),
    )


def _steps(connection: sqlite3.Connection) -> int:
    """How many steps the frames tell of: the fact is older in a run that was cut off."""
    query = "SELECT MAX(step) FROM frame WHERE stream = ?"
    (last,) = connection.execute(query, (STEP,)).fetchone()
    return 0 if not isinstance(last, int) else last + 1


def gaps(connection: sqlite3.Connection) -> tuple[Gap, ...]:
    """What could not be observed, in the order it was noted."""
    rows = connection.execute("SELECT what, why FROM gap ORDER BY rowid").fetchall()
    return tuple(Gap(_text(what, "gap"), _text(why, "gap")) for what, why in rows)


def events(connection: sqlite3.Connection) -> tuple[SemanticEvent, ...]:
    """The events stored with the run, in order of step."""
    rows = connection.execute("SELECT id, json FROM event ORDER BY step, id").fetchall()
    return tuple(codec.decode(SemanticEvent, text, f"event {key}") for key, text in rows)


def experiments(connection: sqlite3.Connection) -> str | None:
    """The JSON of the results of experiments, or None."""
    row = connection.execute("SELECT json FROM fact WHERE key = ?", (EXPERIMENTS,)).fetchone()
    return None if row is None else str(row[0])


def diagnosis(connection: sqlite3.Connection) -> str | None:
    """The JSON of the last diagnosis, or None."""
    row = connection.execute("SELECT json FROM diagnosis").fetchone()
    if row is None:
        return None
    if not isinstance(codec.parse(row[0], "diagnosis"), dict):
        refuse("diagnosis", "not an object")
    return str(row[0])


def series(
    connection: sqlite3.Connection, streams: Sequence[str] = (STEP, LOOK)
) -> dict[Channel, Series]:
    """Every series that has a reading. A channel of both streams is one series."""
    found: dict[Channel, Series] = {}
    for stream in streams:
        channels = _channels(connection, stream)
        block = _block(connection, stream, len(channels))
        for channel, line in zip(channels, _lines(block), strict=True):
            if len(line):
                found[channel] = _joined(found[channel], line) if channel in found else line
    return found


def _channels(connection: sqlite3.Connection, stream: str) -> list[Channel]:
    query = "SELECT position, kind, name, metric FROM channel WHERE stream = ? ORDER BY position"
    rows = connection.execute(query, (stream,)).fetchall()
    if [row[0] for row in rows] != list(range(len(rows))):
        refuse(f"channels of stream {stream}", "not numbered from 0 upwards")
    kinds = {kind.value: kind for kind in Kind}
    unknown = [row[1] for row in rows if row[1] not in kinds]
    if unknown:
        refuse(f"channels of stream {stream}", f"unknown kind {unknown[0]!r:.40}")
    return [
        Channel(kinds[kind], _text(name, "channel"), _text(metric, "channel"))
        for _, kind, name, metric in rows
    ]


def _block(connection: sqlite3.Connection, stream: str, width: int) -> Block:
    query = "SELECT COUNT(*) FROM frame WHERE stream = ?"
    (count,) = connection.execute(query, (stream,)).fetchone()
    steps = np.zeros(count, np.int64)
    values = np.zeros((width, count), np.float64)
    present = np.zeros((width, count), np.bool_)
    start = 0
    for part in _parts(connection, stream, width):
        stop = start + len(part.steps)
        if stop > count:
            break
        steps[start:stop] = part.steps
        values[:, start:stop] = part.values
        present[:, start:stop] = part.present
        start = stop
    if start != count or (np.diff(steps) <= 0).any():
        refuse(f"frames of stream {stream}", "out of order")
    return Block(steps, values, present)


def _parts(connection: sqlite3.Connection, stream: str, width: int) -> Iterator[Block]:
    query = 'SELECT step, "values", present FROM frame WHERE stream = ? ORDER BY step'
    cursor = connection.execute(query, (stream,))
    while rows := cursor.fetchmany(_ROWS):
        yield stack(stream, rows, width)


def _lines(block: Block) -> Iterator[Series]:
    for array in (block.steps, block.values):
        array.setflags(write=False)  # many series share them
    whole: list[bool] = np.all(block.present, axis=1).tolist()
    for values, present, full in zip(block.values, block.present, whole, strict=True):
        if full:
            yield Series(block.steps, values)
        else:
            yield Series(block.steps[present], values[present])


def _joined(first: Series, second: Series) -> Series:
    # np.unique keeps the first of equal steps: the stream "step", which is more precise.
    steps, index = np.unique(np.concatenate([first.steps, second.steps]), return_index=True)
    return Series(steps, np.concatenate([first.values, second.values])[index])


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        refuse(where, f"expected text, found {value!r:.40}")
    return value
