"""Modules against steps: what a cell holds, and how many there are."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.record import Record
from neuraldbg.report.charts.axes import Span
from neuraldbg.report.charts.grid import COLUMNS, ROWS, grids, rows_of

from ..recorded import bare, record, series

MANY = tuple(f"blocks.{i}.{part}" for i in range(100) for part in ("norm", "attn.qkv", "mlp.up"))


def test_rows_are_in_order_of_execution() -> None:
    assert [row.name for row in rows_of(record(("z", "a", "m")))] == ["z", "a", "m"]


def test_many_modules_become_blocks_and_none_is_lost() -> None:
    rows = rows_of(record(MANY))
    assert ROWS // 4 <= len(rows) <= ROWS
    assert [name for row in rows for name in row.modules] == list(MANY)


def test_names_without_blocks_become_stretches() -> None:
    names = tuple(f"layer{i}" for i in range(500))
    rows = rows_of(record(names))
    assert ROWS // 4 <= len(rows) <= ROWS
    assert sum(len(row.modules) for row in rows) == 500


def test_a_cell_holds_the_reading_of_its_step() -> None:
    known = record(("a", "b"))
    span = Span(0, 39)
    found = {grid.measure.name: grid for grid in grids(known, span)}
    assert set(found) == {"gradient", "activation", "inactive", "update"}
    own = known.series(Kind.MODULE, "b", m.GRAD_RMS)
    assert found["gradient"].values[1, ::2] == pytest.approx(own.values)
    assert np.isnan(found["gradient"].values[1, 1::2]).all()


def test_a_reading_that_is_not_finite_is_told_from_none() -> None:
    grid = next(iter(grids(record(("a", "b")), Span(0, 39))))
    assert grid.lost[0, 38]
    assert not grid.lost[0, :38].any()
    assert not grid.lost[1].any()


def test_a_long_run_is_gathered() -> None:
    known = record(("a",), steps=10_000)
    grid = next(iter(grids(known, Span(0, 9_999))))
    assert grid.values.shape == (1, COLUMNS)
    assert np.isfinite(grid.values).all()


def test_zero_is_a_reading() -> None:
    known = record(("a",))
    zero = {Channel(Kind.MODULE, "a", m.GRAD_RMS): series(0.0, 1.0, 0.0)}
    grid = next(iter(grids(Record(known.facts, zero), Span(0, 2))))
    assert grid.values[0].tolist() == [0.0, 1.0, 0.0]
    assert not grid.lost.any()


def test_the_larger_share_of_dead_and_saturated_shows() -> None:
    known = record(("a",))
    shares = {
        Channel(Kind.MODULE, "a", m.ACT_NEGATIVE_UNITS): series(0.9, 0.1, 0.3),
        Channel(Kind.MODULE, "a", m.ACT_FLAT): series(0.2, 0.7, 0.3),
    }
    (grid,) = grids(Record(known.facts, shares), Span(0, 2))
    assert grid.measure.name == "inactive"
    assert grid.values[0].tolist() == [0.9, 0.7, 0.3]


def test_nothing_read_is_no_grid() -> None:
    assert list(grids(bare(), Span(0, 0))) == []
