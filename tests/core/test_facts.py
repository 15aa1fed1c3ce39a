"""Facts."""

from __future__ import annotations

import dataclasses

import pytest

from neuraldbg.core import facts
from neuraldbg.core.facts import Channel, Facts, Kind, Overhead, ParamFact, RunFact, Site


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((7,), 7), ((3, 4, 5), 60), ((3, 0), 0)])
def test_the_number_of_elements_of_a_parameter(shape: tuple[int, ...], count: int) -> None:
    assert ParamFact("w", shape).numel == count


@pytest.mark.parametrize(
    ("name", "module"), [("fc1.weight", "fc1"), ("a.b.c.bias", "a.b.c"), ("scale", "")]
)
def test_a_parameter_belongs_to_the_module_before_its_last_dot(name: str, module: str) -> None:
    assert ParamFact(name).module == module


def test_a_channel_is_a_metric_at_a_site() -> None:
    assert Channel(Kind.MODULE, "fc1", "act_rms").site == Site(Kind.MODULE, "fc1")


def test_facts_know_nothing_that_they_were_not_told() -> None:
    known = Facts(RunFact(id="r"))
    assert known.overhead == Overhead(None, 0.0)
    assert known.run.finished is None
    assert (known.modules, known.params, known.optimizers, known.losses) == ((), (), (), ())


@pytest.mark.parametrize(
    "cls", [x for x in vars(facts).values() if dataclasses.is_dataclass(x)]
)  # fmt: skip
def test_facts_are_frozen(cls: type) -> None:
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hasattr(cls, "__slots__")
