"""A quantity over the steps of a run, or several of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from neuraldbg.core.record import Series
from neuraldbg.report.charts.axes import (
    BOTTOM,
    LEFT,
    PLOT,
    TOP,
    WIDTH,
    Mark,
    Span,
    below,
    beside,
    marks,
    plot,
)
from neuraldbg.report.charts.scale import Scale, fit, number
from neuraldbg.report.charts.svg import label, picture, tag, words
from neuraldbg.report.charts.thin import thin

HEIGHT: Final = 150.0
MOST_LINES: Final = 6


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One picture.

    Attributes:
        name: Unique on its page.
        title: What it shows.
        lines: Series by the name of each, at most `MOST_LINES`.
        marks: Steps to point at.
    """

    name: str
    title: str
    lines: Sequence[tuple[str, Series]]
    marks: tuple[Mark, ...] = field(default=())

    @property
    def thinned(self) -> list[tuple[str, Series]]:
        """The lines with few enough points to draw."""
        return [(name, thin(series)) for name, series in self.lines[:MOST_LINES]]

    def describe(self) -> str:
        """What it shows, in words."""
        return ". ".join(_told(name, series) for name, series in self.lines[:MOST_LINES]) + "."

    def draw(self, span: Span) -> str:
        """As SVG."""
        lines = self.thinned
        scale = fit(np.concatenate([s.values for _, s in lines] or [np.empty(0)]))
        drawn = "".join(_line(i, s, span, scale) for i, (_, s) in enumerate(lines))
        inside = (
            label(self.title, LEFT, 14, class_="chart-title")
            + _legend([name for name, _ in lines])
            + beside(scale, HEIGHT)
            + below(span, HEIGHT)
            + plot(marks(self.marks, span, HEIGHT) + drawn, HEIGHT)
        )
        size = (WIDTH, TOP + HEIGHT + BOTTOM)
        return picture("curve", self.name, size, self.title, self.describe(), inside)

    def data(self) -> dict[str, Any]:
        """What the page's script reads out under the pointer."""
        return {
            "kind": "curve",
            "lines": [
                {"name": name, "steps": s.steps.tolist(), "values": [_short(v) for v in s.values]}
                for name, s in self.thinned
            ],
        }


def _line(index: int, series: Series, span: Span, scale: Scale) -> str:
    """The finite stretches as a path; readings that are no numbers as crosses at the top."""
    height = HEIGHT * (1 - scale.share(series.values))
    path: list[str] = []
    crosses: list[str] = []
    broken = True
    for step, value, y in zip(series.steps.tolist(), series.values, height, strict=True):
        x = span.x(step)
        if not np.isfinite(value):
            crosses.append(_cross(x, step, float(value)))
            broken = True
            continue
        path.append(f"{'M' if broken else 'L'}{x:.1f} {y:.1f}")
        broken = False
    line = tag("path", class_=f"line line-{index}", d="".join(path)) if path else ""
    dots = _dots(index, series, span, height) if len(series) <= 2 else ""
    return line + dots + "".join(crosses)


def _dots(index: int, series: Series, span: Span, height: Any) -> str:  # noqa: ANN401 - array
    """One or two readings make no line that could be seen."""
    return "".join(
        tag("circle", class_=f"dot line-{index}", cx=span.x(step), cy=float(y), r=3)
        for step, y, value in zip(series.steps.tolist(), height, series.values, strict=True)
        if np.isfinite(value)
    )


def _cross(x: float, step: int, value: float) -> str:
    title = tag("title", words(f"{value} at step {step}"))
    return tag(
        "path",
        title,
        class_="nonfinite",
        d=f"M{x - 3:.1f} 1L{x + 3:.1f} 7M{x - 3:.1f} 7L{x + 3:.1f} 1",
    )


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    room = PLOT / MOST_LINES
    return "".join(
        tag(
            "rect",
            class_=f"key line-{i}",
            x=LEFT + PLOT - room * (len(names) - i),
            y=6,
            width=10,
            height=10,
        )
        + label(_cut(name), LEFT + PLOT - room * (len(names) - i) + 14, 15, class_="tick-label")
        for i, name in enumerate(names)
    )


def _cut(name: str, most: int = 17) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _told(name: str, series: Series) -> str:
    if not len(series):
        return f"{name}: no reading"
    finite = series.finite()
    lost = len(series) - len(finite)
    first, last = float(series.values[0]), float(series.values[-1])
    said = f"{name}: {number(first)} at step {series.steps[0]}"
    said += f", {number(last)} at step {series.steps[-1]}"
    if len(finite):
        low, high = int(np.argmin(finite.values)), int(np.argmax(finite.values))
        said += (
            f"; lowest {number(float(finite.values[low]))} at step {finite.steps[low]}"
            f", highest {number(float(finite.values[high]))} at step {finite.steps[high]}"
        )
    if lost:
        bad = int(np.argmax(~np.isfinite(series.values)))
        said += f"; not a finite number from step {series.steps[bad]} ({lost} readings)"
    return said


def _short(value: float) -> float | str:
    return float(f"{value:.4g}") if np.isfinite(value) else str(float(value))
