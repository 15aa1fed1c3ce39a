"""Pictures are well-formed, say what they show, and cannot be broken by a name."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.report.charts import alone, causal, png
from neuraldbg.report.flow import Flow, flow
from neuraldbg.report.pictures import pictures

from ..recorded import bare, record
from ..samples import ALL, EVIL, evil, failed, healthy

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - written by the code under test


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_every_picture_is_well_formed_and_described(make: Callable[[], Diagnosis]) -> None:
    for _, svg in pictures(record((EVIL, "b")), make()).named():
        root = parsed(svg)
        assert root.find(f"{SVG}title") is not None
        said = root.find(f"{SVG}desc")
        assert said is not None
        assert said.text
        assert not [e for e in root.iter() if not e.tag.startswith(SVG)]
        assert not {e.tag for e in root.iter()} & {f"{SVG}script", f"{SVG}b", f"{SVG}foreignObject"}


def test_the_usual_pictures_are_there() -> None:
    names = [name for name, _ in pictures(record(), failed()).named()]
    assert names == [
        "causal",
        "loss",
        "lr",
        "grad-norm",
        "gradient",
        "activation",
        "inactive",
        "update",
    ]
    assert "causal" not in dict(pictures(record(), healthy()).named())
    assert list(pictures(bare(), healthy()).named()) == []


def test_the_onset_is_marked() -> None:
    shown = pictures(record(), failed())
    for curve in shown.main:
        lines = [e for e in parsed(curve.draw(shown.span)).iter() if e.get("class") == "onset"]
        assert len(lines) == 1
        assert float(lines[0].get("x1", "nan")) == pytest.approx(shown.span.x(3), abs=0.01)


def test_a_description_names_the_extremes_and_what_is_not_finite() -> None:
    norm = next(c for c in pictures(record(), failed()).main if c.name == "grad-norm")
    assert "highest" in norm.describe()
    assert "not a finite number from step 38 (2 readings)" in norm.describe()


def test_events_are_on_the_map_at_their_module_and_step() -> None:
    shown = pictures(record(), failed())
    map_ = shown.maps[0]
    assert [(d.row, d.event.step) for d in map_.dots] == [(3, 17), (2, 18), (1, 19), (0, 20)]
    circles = [e for e in parsed(map_.draw()).iter() if "gradient" in e.get("class", "").split()]
    assert len(circles) == 4


def test_a_layer_is_below_all_that_lead_to_it() -> None:
    layers = causal.layered(flow(failed()))
    of = {box: i for i, layer in enumerate(layers) for box in layer}
    assert all(of[a] < of[b] for a, b, _ in flow(failed()).arrows)


def test_a_circle_of_arrows_can_be_drawn() -> None:
    circle = Flow(("a", "b", "c"), ((0, 1, ""), (1, 2, ""), (2, 0, "again")))
    assert causal.layered(circle) == [[0], [1], [2]]
    assert parsed(causal.draw(circle)) is not None


def test_an_evil_cause_is_text_in_the_graph() -> None:
    svg = causal.draw(flow(evil()))
    assert "</script>" not in svg
    assert "&lt;/script&gt;" in svg


def test_the_tiny_png_is_one() -> None:
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    data = png.encode(pixels)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    length = struct.unpack(">I", data[33:37])[0]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(2, 13)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:].reshape(2, 3, 4) == pixels).all()


def test_a_picture_alone_needs_no_variables() -> None:
    svg = alone.svg(pictures(record(), failed()).causal)
    assert "var(" not in svg
    assert "--" not in svg.partition("</style>")[0]
    assert parsed(svg) is not None


def test_a_picture_becomes_png() -> None:
    data = alone.png(pictures(record(), failed()).main[0].draw(pictures(record(), failed()).span))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">I", data[16:20]) == (1800,)
