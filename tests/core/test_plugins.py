"""Causes and detectors of other packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuraldbg.core import plugins
from neuraldbg.core.causes import CAUSES, all_causes
from neuraldbg.core.detect import DETECTORS
from neuraldbg.core.engine import diagnose

from .records import classifier

CAUSE = """
from neuraldbg.core.causes import Finding, cause, evidence

@cause("too_few_coffees", "Nobody made coffee.", repair="Make some.")
def _coffee(view):
    return Finding((evidence("the pot is empty", 9.0),))
"""
DETECTOR = """
from neuraldbg.core.detect import detector

@detector
def coffee(record):
    raise LookupError("no pot")
"""
ENTRIES = """
[neuraldbg.causes]
coffee = coffee_causes
broken = coffee_missing

[neuraldbg.detectors]
pot = coffee_detector
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with a cause, a detector that raises, and an entry point into nothing."""
    all_causes()
    kept = dict(CAUSES), dict(DETECTORS)
    info = tmp_path / "coffee-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: coffee\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "coffee_causes.py").write_text(CAUSE)
    (tmp_path / "coffee_detector.py").write_text(DETECTOR)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_LOADED", set())
    monkeypatch.setattr(plugins, "FAULTY", {})
    yield
    for registry, before in zip((CAUSES, DETECTORS), kept, strict=True):
        registry.clear()
        registry.update(before)
    for name in ("coffee_causes", "coffee_detector"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("installed")
def test_a_cause_of_another_package_is_weighed_and_what_fails_is_named() -> None:
    found = diagnose(classifier().build())
    assert [h.cause for h in found.hypotheses] == ["too_few_coffees"]
    gaps = {g.what: g.why for g in found.gaps}
    assert gaps["detector coffee_detector"] == "LookupError: no pot"
    assert gaps["plug-in broken (coffee_missing)"].startswith("ModuleNotFoundError")
