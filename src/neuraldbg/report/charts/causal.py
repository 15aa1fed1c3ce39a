"""The causal graph: from the root at the top to what the user saw at the bottom."""

from __future__ import annotations

import textwrap
from typing import Final

from neuraldbg.report.charts.svg import label, picture, tag
from neuraldbg.report.flow import Flow

_WIDTH: Final = 250.0  # of a box
_LETTERS: Final = 38  # that fit into one line of a box
_LINE: Final = 15.0
_PAD: Final = 9.0
_GAP: Final = (30.0, 42.0)  # between boxes of a layer, and between layers
_EDGE: Final = 12.0
_MOST_LINES: Final = 5


def draw(flow: Flow, name: str = "causal") -> str:
    """A flow as SVG, in layers: every arrow that can points down."""
    layers = layered(flow)
    lines = [_wrapped(box) for box in flow.boxes]
    heights = [2 * _PAD + _LINE * len(box) for box in lines]
    places, size = _placed(layers, heights)
    arrows = "".join(
        _arrow(places[a], places[b], said, heights[a], heights[b]) for a, b, said in flow.arrows
    )
    ends = {a for a, _, _ in flow.arrows}
    boxes = "".join(
        _box(lines[i], places[i], heights[i], _role(i, last=i not in ends))
        for i in range(len(lines))
    )
    return picture("causal", name, size, "Causal graph", describe(flow), _head() + arrows + boxes)


def describe(flow: Flow) -> str:
    """The graph in words: every box, in order."""
    return "; then ".join(box.replace("\n", ", ") for box in flow.boxes) or "nothing to draw"


def layered(flow: Flow) -> list[list[int]]:
    """Boxes by layer, each below all that lead to it; an arrow that closes a circle is left out."""
    depth = [0] * len(flow.boxes)
    onward: dict[int, list[int]] = {}
    for source, target, _ in flow.arrows:
        if not _reaches(onward, target, source):
            onward.setdefault(source, []).append(target)
    for _ in flow.boxes:
        for source, targets in onward.items():
            for target in targets:
                depth[target] = max(depth[target], depth[source] + 1)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for box, layer in enumerate(depth):
        layers[layer].append(box)
    return layers


def _reaches(onward: dict[int, list[int]], start: int, goal: int) -> bool:
    seen, todo = {start}, [start]
    while todo:
        box = todo.pop()
        if box == goal:
            return True
        fresh = [b for b in onward.get(box, []) if b not in seen]
        seen.update(fresh)
        todo += fresh
    return False


def _placed(
    layers: list[list[int]], heights: list[float]
) -> tuple[dict[int, tuple[float, float]], tuple[float, float]]:
    """Where the middle of the top of each box is, and how large the picture is."""
    widest = max((len(layer) for layer in layers), default=1)
    width = 2 * _EDGE + widest * _WIDTH + (widest - 1) * _GAP[0]
    places: dict[int, tuple[float, float]] = {}
    y = _EDGE
    for layer in layers:
        room = len(layer) * _WIDTH + (len(layer) - 1) * _GAP[0]
        for i, box in enumerate(layer):
            places[box] = ((width - room) / 2 + i * (_WIDTH + _GAP[0]) + _WIDTH / 2, y)
        y += max(heights[box] for box in layer) + _GAP[1]
    return places, (width, max(y - _GAP[1] + _EDGE, 2 * _EDGE))


def _wrapped(text: str) -> list[str]:
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, _LETTERS)]
    return (
        lines
        if len(lines) <= _MOST_LINES
        else [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][:-1] + "…"]
    )


def _role(at: int, *, last: bool) -> str:
    return "root" if at == 0 else "symptom" if last else "between"


def _box(lines: list[str], place: tuple[float, float], height: float, role: str) -> str:
    x, y = place
    frame = tag(
        "rect", x=x - _WIDTH / 2, y=y, width=_WIDTH, height=height, rx=7, class_=f"box {role}"
    )
    said = "".join(
        label(line, x, y + _PAD + _LINE * (i + 0.75), text_anchor="middle", class_="box-text")
        for i, line in enumerate(lines)
    )
    return frame + said


def _arrow(
    source: tuple[float, float], target: tuple[float, float], said: str, height: float, other: float
) -> str:
    (x0, y0), (x1, y1) = (source[0], source[1] + height), target
    if y1 <= y0:  # sideways or back up: from side to side
        y0, y1 = source[1] + height / 2, target[1] + other / 2
        side = 1 if x1 >= x0 else -1
        x0, x1 = x0 + side * _WIDTH / 2, x1 - side * _WIDTH / 2
        path = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"
    else:
        middle = (y0 + y1) / 2
        path = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    line = tag("path", d=path, class_="arrow", marker_end="url(#arrowhead)")
    text = label(said, (x0 + x1) / 2 + 6, (y0 + y1) / 2 + 4, class_="tick-label") if said else ""
    return line + text


def _head() -> str:
    tip = tag("path", d="M0 0L8 4L0 8Z", class_="arrowhead")
    marker = tag("marker", tip, id="arrowhead", viewBox="0 0 8 8", refX=8, refY=4, markerWidth=8,
                 markerHeight=8, orient="auto-start-reverse")  # fmt: skip
    return tag("defs", marker)
