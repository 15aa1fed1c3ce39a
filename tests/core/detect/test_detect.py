"""All detectors together."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from neuraldbg.core import detect
from neuraldbg.core.detect import DETECTORS, extract
from neuraldbg.core.record import Record, Series

from ..records import classifier, deep, healthy_record, regression


def sick() -> Record:
    """A run in which something of everything is wrong."""
    nan, dead = np.full(50, 0.9), np.full(50, 0.05)
    nan[40:], dead[20:] = np.nan, 1.0
    bad = np.zeros(50)
    bad[30:] = 2.0
    draft = classifier().diverges().of_module("fc3", act_rms=nan, grad_rms=nan)
    draft.of_module("act1", act_negative_units=dead).of_param("fc1.weight", update_ratio=0.0)
    return draft.of_batch("input", nonfinite=bad).build()


def test_every_file_of_the_package_is_a_detector() -> None:
    extract(healthy_record())
    files = {x.name for x in pkgutil.iter_modules(detect.__path__)} - {"states"}
    assert set(DETECTORS) == files
    for name in files:
        assert importlib.import_module(f"{detect.__name__}.{name}").__doc__


def test_a_healthy_run_has_no_events() -> None:
    assert extract(healthy_record()) == ()
    assert extract(regression().build()) == ()
    assert extract(deep(12).build()) == ()


def test_an_empty_run_has_no_events() -> None:
    assert extract(Record(classifier().build().facts)) == ()


def test_events_come_in_order_of_step() -> None:
    found = extract(sick())
    assert len({e.kind for e in found}) == 5
    assert [e.step for e in found] == sorted(e.step for e in found)


def test_ids_are_unique_and_the_same_on_every_extraction() -> None:
    first, second = extract(sick()), extract(sick())
    assert repr(first) == repr(second)  # NaN is not equal to itself
    assert len({e.id for e in first}) == len(first)


def test_ids_do_not_depend_on_the_order_of_the_channels() -> None:
    record = sick()
    turned = Record(record.facts, dict(reversed(record.channels.items())))
    assert repr(extract(turned)) == repr(extract(record))


def test_ids_stay_when_the_run_goes_on() -> None:
    record = sick()
    shorter = {
        c: Series(s.steps[s.steps < 150], s.values[s.steps < 150])
        for c, s in record.channels.items()
    }
    early = {e.id for e in extract(Record(record.facts, shorter)) if e.step < 100}
    assert early
    assert early <= {e.id for e in extract(record)}
