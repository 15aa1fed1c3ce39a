"""The frame that pictures over time share: one axis of steps, so that they line up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from neuraldbg.report.charts.scale import Scale, number, steps_of
from neuraldbg.report.charts.svg import label, tag

WIDTH: Final = 900.0
LEFT: Final = 160.0  # room for the names of modules
PLOT: Final = 720.0  # pixels from the first step to the last
TOP: Final = 22.0
BOTTOM: Final = 34.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A step worth pointing at, e.g. the onset."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """The steps of a run, and where they are in a picture."""

    first: int
    last: int

    def x(self, step: float) -> float:
        """Pixels from the left edge of the plot to the middle of a step."""
        return (step - self.first + 0.5) / self.steps * PLOT

    @property
    def steps(self) -> int:
        """How many."""
        return max(self.last - self.first + 1, 1)


def plot(inside: str, height: float) -> str:
    """What moves when a reader zooms: a picture in the picture, with its own coordinates."""
    return tag(
        "svg",
        inside + tag("line", class_="cursor", x1=0, x2=0, y1=0, y2=height, visibility="hidden"),
        class_="plot",
        x=LEFT,
        y=TOP,
        width=PLOT,
        height=height,
        viewBox=f"0 0 {PLOT:g} {height:g}",
        preserveAspectRatio="none",
    )


def below(span: Span, height: float) -> str:
    """The axis of steps. Its ticks are drawn anew by the page's script when one zooms."""
    y = TOP + height
    ticks = "".join(_tick(span, step, y) for step in _whole(span))
    title = label("step", LEFT + PLOT / 2, y + 30, class_="axis-title", text_anchor="middle")
    line = tag("line", class_="axis", x1=LEFT, x2=LEFT + PLOT, y1=y, y2=y)
    return line + tag("g", ticks, class_="xticks") + title


def beside(scale: Scale, height: float) -> str:
    """The axis of values, with faint lines across."""
    return "".join(_level(scale, value, height) for value in scale.ticks())


def marks(found: tuple[Mark, ...], span: Span, height: float) -> str:
    """Lines at steps worth pointing at."""
    return "".join(_mark(mark, span.x(mark.step), height) for mark in found)


def _mark(mark: Mark, x: float, height: float) -> str:
    title = tag("title", label_text(mark))
    return tag("line", title, class_="onset", x1=x, x2=x, y1=0, y2=height)


def label_text(mark: Mark) -> str:
    """A mark in words, escaped."""
    from neuraldbg.report.charts.svg import words

    return words(f"{mark.text}, step {mark.step}")


def _whole(span: Span) -> Iterator[int]:
    for value in steps_of(span.first, span.last, most=8):
        if value == int(value) and span.first <= value <= span.last:
            yield int(value)


def _tick(span: Span, step: int, y: float) -> str:
    x = LEFT + span.x(step)
    line = tag("line", class_="tick", x1=x, x2=x, y1=y, y2=y + 4)
    return line + label(step, x, y + 16, class_="tick-label", text_anchor="middle")


def _level(scale: Scale, value: float, height: float) -> str:
    import numpy as np

    share = float(scale.share(np.array([value]))[0])
    y = TOP + height * (1 - share)
    line = tag("line", class_="grid", x1=LEFT, x2=LEFT + PLOT, y1=y, y2=y)
    return line + label(number(value), LEFT - 6, y + 4, class_="tick-label", text_anchor="end")
