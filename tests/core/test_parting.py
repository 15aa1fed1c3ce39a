"""Where two runs part, and the rounding that is expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.parting import compare
from neuraldbg.core.record import Record, Series
from neuraldbg.core.rounding import Rounding

from .records import Draft, classifier

Edit = Callable[[np.ndarray], np.ndarray]


def with_series(record: Record, name: str, metric: str, edit: Edit) -> Record:
    """The record with one series of a module changed."""
    channel = Channel(Kind.MODULE, name, metric)
    series = record.channels[channel]
    other = Series(series.steps, edit(series.values.copy()))
    return replace(record, channels={**record.channels, channel: other})


def times(factor: float, first: int = 0) -> Edit:
    def edit(values: np.ndarray) -> np.ndarray:
        values[first:] *= factor
        return values

    return edit


def test_equal_runs_agree() -> None:
    found = compare(classifier().build(), classifier().build())
    assert found.first is None
    assert not found.obstacle
    assert len(found.steps) == 50


@pytest.mark.parametrize("metric", ["act_rms", "act_absmax", "grad_rms", "grad_absmax"])
def test_a_leap_at_one_module_is_named(metric: str) -> None:
    record = classifier().build()
    found = compare(record, with_series(record, "fc2", metric, times(1.01, 7)))
    assert found.first is not None
    assert (found.first.step, found.first.where, found.first.metric) == (28, "fc2", metric)
    assert found.first.side == ("forward" if metric.startswith("act") else "backward")
    assert found.first.roundings > 10
    assert max(found.steps) == 28


def test_the_first_in_order_of_computation_comes_first() -> None:
    """Forward in order of execution, then backward in the opposite order."""
    record = classifier().build()
    names = [x.name for x in record.called() if x.leaf]
    wrong = record
    for name in names:
        wrong = with_series(wrong, name, "grad_rms", times(1.1))
    found = compare(record, wrong)
    assert found.first is not None
    assert found.first.where == names[-1]
    for name in names[1:]:
        wrong = with_series(wrong, name, "act_rms", times(1.1))
    found = compare(record, wrong)
    assert found.first is not None
    assert (found.first.where, found.first.side) == (names[1], "forward")


def test_differences_within_rounding_are_none() -> None:
    record = classifier().build()
    assert compare(record, with_series(record, "fc2", "act_rms", times(1 + 1e-6))).first is None


def test_small_differences_that_grow_are_amplification() -> None:
    """Training is chaotic: what starts as rounding may end as anything."""
    record = classifier().build()
    grown = 1 + 1e-7 * 1.4 ** np.arange(50)
    found = compare(record, with_series(record, "fc2", "act_rms", lambda x: x * grown))
    assert grown[-1] > 1.1
    assert found.first is None


def test_not_finite_in_one_run_alone_is_no_rounding() -> None:
    def spoil(values: np.ndarray) -> np.ndarray:
        values[3:] = np.nan
        return values

    record = classifier().build()
    wrong = with_series(record, "fc2", "act_rms", spoil)
    found = compare(record, wrong)
    assert found.first is not None
    assert found.first.roundings == float("inf")
    assert found.first.step == 12
    assert compare(wrong, wrong).first is None


def test_signals_that_cancel_are_not_compared() -> None:
    """Next to nothing beside the largest gradient: rounding may be all that is left of it."""
    draft = classifier().of_module("fc2", grad_rms=1e-10, grad_absmax=1e-10, grad_mean=0.0)
    record = draft.build()
    assert compare(record, with_series(record, "fc2", "grad_rms", times(2.0))).first is None


def test_other_data_are_told_from_other_computations() -> None:
    record = classifier().build()
    channel = Channel(Kind.BATCH, "input", "std")
    series = record.channels[channel]
    channels = {**record.channels, channel: Series(series.steps, series.values * 1.5)}
    found = compare(record, replace(record, channels=channels))
    assert found.first is not None
    assert (found.first.side, found.first.where, found.first.step) == ("batch", "input", 0)


def other_start(draft: Draft) -> Draft:
    draft.params = [replace(p, init_rms=(p.init_rms or 0) + 0.1) for p in draft.params]
    return draft


def other_sizes(draft: Draft) -> Draft:
    draft.params = [replace(p, shape=(3, 3)) for p in draft.params]
    return draft


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (other_start, "they start from different weights"),
        (other_sizes, "has other sizes"),
        (lambda _: Draft(), "no module was seen in one of the runs"),
        (lambda _: Draft().layer("else", 2, 2), "different models"),
    ],
)
def test_what_cannot_be_compared(edit: Callable[[Draft], Draft], says: str) -> None:
    found = compare(classifier().build(), edit(classifier()).build())
    assert says in found.obstacle
    assert found.first is None


def test_no_step_in_common() -> None:
    one = classifier().build()
    late = {c: Series(s.steps + 1, s.values) for c, s in one.channels.items()}
    assert "no step" in compare(one, replace(one, channels=late)).obstacle


def test_rounding_by_type_and_depth() -> None:
    def expected(dtype: str, passed: int) -> float:
        draft = classifier()
        draft.params = [replace(p, dtype=dtype) for p in draft.params]
        return Rounding(draft.build().facts).expected(passed)

    assert expected("float64", 0) < expected("float16", 0) < expected("bfloat16", 0)
    assert expected("float32", 0) < 1e-4 < expected("bfloat16", 0)
    assert expected("float32", 3) == pytest.approx(2 * expected("float32", 0))


def test_mixed_precision_rounds_more() -> None:
    draft = classifier()
    draft.run = replace(draft.run, notes={"autocast": "bfloat16"})
    assert Rounding(draft.build().facts).dtype == "bfloat16"


@pytest.mark.parametrize(("kind", "parts"), [("SGD", True), ("AdamW", False)])
def test_an_adaptive_optimizer_moves_entries_by_their_rounding(kind: str, parts: bool) -> None:
    """By up to the learning rate, in opposite directions in the two runs."""
    draft = classifier()
    draft.optimizers = [replace(draft.optimizers[0], kind=kind)]
    record = draft.build()
    (rate,) = {*record.series(Kind.OPTIMIZER, "0.0", "lr").values.tolist()}

    def move(values: np.ndarray) -> np.ndarray:
        return values + 1.5 * rate * np.arange(len(values))

    found = compare(record, with_series(record, "fc2", "act_rms", move))
    assert (found.first is not None) == parts
