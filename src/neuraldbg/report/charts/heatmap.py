"""Modules in order of execution against steps, with the events marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.report.charts import png
from neuraldbg.report.charts.axes import (
    BOTTOM,
    LEFT,
    PLOT,
    TOP,
    WIDTH,
    Mark,
    below,
    marks,
    plot,
)
from neuraldbg.report.charts.grid import Grid
from neuraldbg.report.charts.scale import Scale, fit, number
from neuraldbg.report.charts.svg import label, picture, tag, words

CELL: Final = 12.0  # height of a row in pixels
MOST_EVENTS: Final = 200
_KEY: Final = 44.0  # room for the key of colours

# Cividis (Nunez et al. 2018): read alike with every kind of colour vision, and in grey.
_STOPS: Final = np.array(
    [(0, 32, 77), (49, 67, 107), (87, 92, 110), (124, 123, 120), (165, 156, 116), (211, 193, 100),
     (255, 234, 70)],
    np.float64,
)  # fmt: skip
_LOST: Final = (214, 39, 94, 255)  # not a finite number: no colour of the scale
_SHADE: Final = 70  # opacity, of 255
_KINDS: Final = {
    EventType.GRADIENT: "gradient",
    EventType.ACTIVATION: "activation",
    EventType.UPDATE: "update",
    EventType.NONFINITE: "nonfinite",
}


@dataclass(frozen=True, slots=True)
class Dot:
    """An event on the map: its row, and the words for it."""

    row: int
    event: SemanticEvent

    @property
    def text(self) -> str:
        """What changed, where and when."""
        e = self.event
        return f"{e.where}: {e.before} to {e.after} at step {e.step}"


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """One measure of a grid as a picture.

    Attributes:
        name: Unique on its page.
        grid: The cells.
        events: What happened; those at modules of the grid are marked.
        marks: Steps to point at.
    """

    name: str
    grid: Grid
    events: Sequence[SemanticEvent]
    marks: tuple[Mark, ...] = ()

    @property
    def scale(self) -> Scale:
        """From values to colours."""
        if self.grid.measure.scale:
            return fit(self.grid.values.ravel(), logarithmic=True)
        return Scale(0.0, 1.0)

    @property
    def dots(self) -> list[Dot]:
        """The events that have a row, the first of each row and state."""
        row_of = {name: i for i, row in enumerate(self.grid.rows) for name in row.modules}
        found: dict[tuple[int, str, str], Dot] = {}
        for event in sorted(self.events, key=lambda e: e.step):
            row = row_of.get(event.where, row_of.get(event.where.rpartition(".")[0]))
            if row is not None and event.kind in _KINDS and event.after != "healthy":
                found.setdefault((row, event.kind, event.after), Dot(row, event))
        return list(found.values())[:MOST_EVENTS]

    def describe(self) -> str:
        """What it shows, in words."""
        grid, span = self.grid, self.grid.span
        said = [f"{len(grid.rows)} rows over steps {span.first} to {span.last}"]
        if np.isfinite(grid.values).any():
            said += [self._extreme("highest", int(np.nanargmax(grid.values)))]
            said += [self._extreme("lowest", int(np.nanargmin(grid.values)))]
        if grid.lost.any():
            row, column = np.unravel_index(int(np.argmax(grid.lost.T)), grid.lost.T.shape)[::-1]
            place = f"{grid.rows[int(row)].name}, step {self._step(int(column))}"
            said.append(f"not a finite number first at {place}")
        said.append(f"{len(self.dots)} events marked")
        return ". ".join(said) + "."

    def table(self) -> list[tuple[str, ...]]:
        """First, last, lowest and highest value of each row, for those who read it as text."""
        return [(row.name, *self._row(i)) for i, row in enumerate(self.grid.rows)]

    def draw(self) -> str:
        """As SVG."""
        height = CELL * len(self.grid.rows)
        image = tag(
            "image",
            href=png.address(self._pixels()),
            width=PLOT,
            height=height,
            preserveAspectRatio="none",
            class_="cells",
        )
        inside = (
            label(self.grid.measure.title, LEFT, 14, class_="chart-title")
            + "".join(self._names())
            + below(self.grid.span, height)
            + plot(image + marks(self.marks, self.grid.span, height) + self._dots(), height)
            + self._key(TOP + height + BOTTOM)
        )
        size = (WIDTH, TOP + height + BOTTOM + _KEY)
        return picture("heatmap", self.name, size, self.grid.measure.title, self.describe(), inside)

    def data(self) -> dict[str, Any]:
        """What the page's script reads out under the pointer."""
        return {
            "kind": "heatmap",
            "rows": [row.name for row in self.grid.rows],
            "columns": self.grid.columns,
            "cells": [
                [_cell(v, bad) for v, bad in zip(values, lost, strict=True)]
                for values, lost in zip(
                    self.grid.values.tolist(), self.grid.lost.tolist(), strict=True
                )
            ],
            "events": [{"row": d.row, "step": d.event.step, "text": d.text} for d in self.dots],
        }

    def _pixels(self) -> png.Pixels:
        share = self.scale.share(np.nan_to_num(self.grid.values, nan=self.scale.low))
        stops = np.linspace(0, 1, len(_STOPS))
        pixels = np.zeros((*share.shape, 4), np.uint8)
        for channel in range(3):
            pixels[..., channel] = np.interp(share, stops, _STOPS[:, channel])
        pixels[..., 3] = np.where(np.isfinite(self.grid.values), 255, 0)
        pixels[self.grid.lost] = _LOST
        return _faded(pixels)

    def _names(self) -> list[str]:
        middle = TOP + CELL * 0.8
        return [
            tag("text", tag("title", words(row.name)), words(_cut(row.name)), x=LEFT - 6,
                y=middle + CELL * i, class_="row-label", text_anchor="end")
            for i, row in enumerate(self.grid.rows)
        ]  # fmt: skip

    def _dots(self) -> str:
        return "".join(
            tag("circle", tag("title", words(dot.text)), class_=f"event {_KINDS[dot.event.kind]}",
                cx=self.grid.span.x(dot.event.step), cy=CELL * (dot.row + 0.5), r=3.5)
            for dot in self.dots
        )  # fmt: skip

    def _key(self, y: float) -> str:
        ramp = np.zeros((1, len(_STOPS) * 8, 4), np.uint8)
        at = np.linspace(0, 1, ramp.shape[1])
        for channel in range(3):
            ramp[0, :, channel] = np.interp(at, np.linspace(0, 1, len(_STOPS)), _STOPS[:, channel])
        ramp[..., 3] = 255
        scale, x = self.scale, LEFT
        return (
            tag(
                "image",
                href=png.address(ramp),
                x=x,
                y=y,
                width=180,
                height=10,
                preserveAspectRatio="none",
            )
            + label(self._lowest(), x, y + 24, class_="tick-label")
            + label(number(scale.high), x + 180, y + 24, class_="tick-label", text_anchor="end")
            + tag("rect", class_="lost", x=x + 210, y=y, width=10, height=10)
            + label("not finite", x + 224, y + 9, class_="tick-label")
            + tag("circle", class_="event", cx=x + 305, cy=y + 5, r=3.5)
            + label("event", x + 314, y + 9, class_="tick-label")
            + label("faded: the last reading; blank: none", x + 370, y + 9, class_="tick-label")
        )

    def _lowest(self) -> str:
        """What the first colour stands for; on a logarithmic axis for zero, too."""
        zero = self.grid.measure.scale and bool((self.grid.values == 0).any())
        return ("0 or " if zero else "") + number(self.scale.low)

    def _extreme(self, word: str, at: int) -> str:
        row, column = np.unravel_index(at, self.grid.values.shape)
        value = number(float(self.grid.values[row, column]))
        step = self._step(int(column))
        return f"{word} {value} at {self.grid.rows[int(row)].name}, about step {step}"

    def _step(self, column: int) -> int:
        span = self.grid.span
        return span.first + column * span.steps // self.grid.columns

    def _row(self, at: int) -> tuple[str, str, str, str, str]:
        values, lost = self.grid.values[at], self.grid.lost[at]
        finite = values[np.isfinite(values)]
        if not len(finite):
            return ("-", "-", "-", "-", "yes" if lost.any() else "no")
        numbers = (finite[0], finite[-1], finite.min(), finite.max())
        first, last, low, high = (number(float(v)) for v in numbers)
        return first, last, low, high, "yes" if lost.any() else "no"


def _faded(pixels: png.Pixels) -> png.Pixels:
    """Between two looks, a shade of the one before: a long run is looked at rarely."""
    read = pixels[..., 3] > 0
    columns = np.arange(pixels.shape[1])
    last = np.maximum.accumulate(np.where(read, columns, -1), axis=1)
    out = pixels[np.arange(len(pixels))[:, None], np.maximum(last, 0)]
    out[..., 3] = np.where(read, out[..., 3], np.where(last >= 0, _SHADE, 0))
    return out


def _cell(value: float, lost: bool) -> float | str | None:  # noqa: FBT001 - one of a pair
    if lost:
        return "not finite"
    return float(f"{value:.3g}") if np.isfinite(value) else None


def _cut(name: str, most: int = 24) -> str:
    return name if len(name) <= most else f"…{name[-most + 1 :]}"
