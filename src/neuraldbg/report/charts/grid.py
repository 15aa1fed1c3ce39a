"""Modules against steps: readings gathered into few enough cells to look at.

Rows are leaf modules in order of execution, or blocks of them where there are many. A cell
holds the middle of its scales, the worst of its shares, and says if any reading was not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind, ModuleFact
from neuraldbg.core.record import Floats, Ints, Record, Series
from neuraldbg.report.charts.axes import Span

ROWS: Final = 64  # what a screen shows with names that can be read
COLUMNS: Final = 180  # cells of four pixels


@dataclass(frozen=True, slots=True)
class Measure:
    """One quantity that the map can show.

    Attributes:
        name: Part of an id.
        title: For people.
        metrics: Read at the module, or at its parameters.
        scale: Whether it is a scale, on a logarithmic axis; otherwise a share from 0 to 1.
    """

    name: str
    title: str
    kind: Kind
    metrics: tuple[str, ...]
    scale: bool


MEASURES: Final = (
    Measure(
        "gradient", "Gradient scale (root mean square)", Kind.MODULE, (m.GRAD_RMS,), scale=True
    ),
    Measure(
        "activation", "Activation scale (root mean square)", Kind.MODULE, (m.ACT_RMS,), scale=True
    ),
    Measure(
        "inactive",
        "Dead or saturated (largest share)",
        Kind.MODULE,
        (m.ACT_NEGATIVE_UNITS, m.ACT_FLAT),
        scale=False,
    ),
    Measure("update", "Update to weight ratio", Kind.PARAM, (m.P_RATIO,), scale=True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A module, or a block of neighbouring ones."""

    name: str
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Cells of one measure.

    Attributes:
        values: Shape (rows, columns); NaN where there is no finite reading.
        lost: Shape (rows, columns); whether a reading there was not finite.
    """

    measure: Measure
    rows: tuple[Row, ...]
    span: Span
    columns: int
    values: Floats
    lost: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def rows_of(record: Record, most: int = ROWS) -> tuple[Row, ...]:
    """Leaf modules in order of execution; as blocks by common name where they are too many."""
    leaves = [x for x in record.called() if x.leaf]
    finer: tuple[Row, ...] = ()
    for depth in range(_deepest(leaves), 0, -1):
        rows = _blocks(leaves, depth)
        if len(rows) <= most:
            # One row for a model of a hundred equal blocks would hide where it happened.
            return rows if not finer or len(rows) >= most // 4 else _stretches(finer, most)
        finer = rows
    return _stretches(finer, most)


def grids(record: Record, span: Span) -> Iterator[Grid]:
    """Every measure of which there is a reading."""
    rows = rows_of(record)
    columns = min(COLUMNS, span.steps)
    owned = _owned(record)
    for measure in MEASURES:
        grid = _grid(record, measure, rows, span, columns, owned)
        if grid is not None:
            yield grid


def column_of(steps: Ints, span: Span, columns: int) -> Ints:
    """The column that each step falls into."""
    found: Ints = ((steps - span.first) * columns) // span.steps
    return np.clip(found, 0, columns - 1)


def _grid(
    record: Record,
    measure: Measure,
    rows: tuple[Row, ...],
    span: Span,
    columns: int,
    owned: dict[str, list[str]],
) -> Grid | None:
    values = np.full((len(rows), columns), np.nan)
    lost = np.zeros((len(rows), columns), np.bool_)
    any_reading = False
    for at, row in enumerate(rows):
        found = list(_series(record, measure, row, owned))
        if found:
            any_reading = True
            values[at], lost[at] = _gathered(found, measure, span, columns)
    return Grid(measure, rows, span, columns, values, lost) if any_reading else None


def _series(
    record: Record, measure: Measure, row: Row, owned: dict[str, list[str]]
) -> Iterator[Series]:
    for module in row.modules:
        sites = [module] if measure.kind == Kind.MODULE else owned.get(module, [])
        for site in sites:
            for metric in measure.metrics:
                series = record.channels.get(Channel(measure.kind, site, metric))
                if series is not None and len(series):
                    yield series


def _gathered(
    found: list[Series], measure: Measure, span: Span, columns: int
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    at = column_of(np.concatenate([s.steps for s in found]), span, columns)
    values = np.concatenate([s.values for s in found])
    finite = np.isfinite(values)
    lost = np.zeros(columns, np.bool_)
    lost[at[~finite]] = True
    gather: Callable[[Floats], Floats] = np.median if measure.scale else np.max
    out = np.full(columns, np.nan)
    order = np.argsort(at[finite], kind="stable")
    sorted_at, sorted_values = at[finite][order], values[finite][order]
    starts = np.flatnonzero(np.diff(sorted_at, prepend=-1))
    for start, stop in pairwise([*starts, len(sorted_at)]):
        out[sorted_at[start]] = gather(sorted_values[start:stop])
    return out, lost


def _owned(record: Record) -> dict[str, list[str]]:
    owned: dict[str, list[str]] = {}
    for param in record.facts.params:
        owned.setdefault(param.module, []).append(param.name)
    return owned


def _deepest(leaves: Sequence[ModuleFact]) -> int:
    return max((x.name.count(".") + 1 for x in leaves), default=1)


def _blocks(leaves: Sequence[ModuleFact], depth: int) -> tuple[Row, ...]:
    """Neighbours whose names agree to that depth."""
    members: dict[str, list[str]] = {}
    for leaf in leaves:
        members.setdefault(".".join(leaf.name.split(".")[:depth]), []).append(leaf.name)
    return tuple(Row(_named(block, names), tuple(names)) for block, names in members.items())


def _named(block: str, names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{block} ({len(names)})"


def _stretches(rows: tuple[Row, ...], most: int) -> tuple[Row, ...]:
    """Neighbours in equal numbers, where names show no blocks."""
    size = -(-len(rows) // most)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    return tuple(Row(_stretch(p), tuple(n for row in p for n in row.modules)) for p in parts)


def _stretch(part: Sequence[Row]) -> str:
    first, last = (row.name.partition(" (")[0] for row in (part[0], part[-1]))
    return first if len(part) == 1 else f"{first} to {last}"
