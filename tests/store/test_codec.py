"""JSON of facts and events: exact both ways, and suspicious when reading."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import (
    LossFact,
    ModuleFact,
    OptimizerFact,
    Overhead,
    ParamFact,
    RunFact,
    TensorFact,
)
from neuraldbg.errors import RunFileError
from neuraldbg.store import codec

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["nan", "inf", "-inf", "\ud800"])
)
ODD: list[Any] = [
    *(None, True, 7, -1.5, 1e308, "", "nan", "text"),
    *([], [None], [1], ["a"], [[1]], [{}], [[1], [2]], {}, {"text": "nan"}, {"text": 1}),
    *({"a": []}, {"a": {"text": "inf"}}, {"a": 1}),
]
VALID: dict[type[Any], Any] = {
    RunFact: RunFact(id="r"),
    ModuleFact: ModuleFact(name="m", kind="Linear"),
    ParamFact: ParamFact(name="m.weight", shape=(2, 3)),
    OptimizerFact: OptimizerFact(index=0, kind="SGD", groups=({"lr": 0.1},)),
    LossFact: LossFact(target=TensorFact(shape=(1,)), broadcast=((1,), (2,))),
    TensorFact: TensorFact(low=0.5),
    Overhead: Overhead(ratio=0.01),
    SemanticEvent: SemanticEvent("e", EventType.LOSS, "loss", 3, "improving", "stalled"),
}
MAPPINGS = st.dictionaries(st.text(), SCALARS, max_size=4)
MAPPED: dict[str, Any] = {
    "notes": MAPPINGS,
    "config": MAPPINGS,
    "metadata": MAPPINGS,
    "groups": st.lists(MAPPINGS, max_size=3).map(tuple),
}
KINDS = list(VALID)


@pytest.mark.parametrize("kind", KINDS)
def test_comes_back_as_it_was(kind: type[Any]) -> None:
    parts = {name: MAPPED.get(name, ...) for name in kind.__dataclass_fields__}

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.builds(kind, **parts), max_size=2))
    def check(facts: list[Any]) -> None:
        text = codec.encode(tuple(facts))
        json.loads(text, parse_constant=pytest.fail)
        assert text.isascii()
        # repr, because NaN does not equal itself
        assert repr(codec.decode_all(kind, text, "x")) == repr(tuple(facts))

    check()


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(), SCALARS))
def test_scalars_keep_type_and_value(notes: dict[str, Any]) -> None:
    fact = RunFact(id="r", notes=notes)
    assert repr(codec.decode(RunFact, codec.encode(fact), "run")) == repr(fact)


def test_nonfinite_numbers_are_words() -> None:
    text = codec.encode(Overhead(ratio=float("nan"), seconds=float("-inf")))
    assert json.loads(text) == {"ratio": "nan", "seconds": "-inf"}


def test_numpy_numbers_and_odd_settings_are_accepted() -> None:
    notes: dict[str, Any] = {
        "int": np.int64(3),
        "float": np.float32("inf"),
        "long": np.longdouble(0.5),
        "flag": np.bool_(True),
        "odd": (1, 2),
    }
    read = codec.decode(RunFact, codec.encode(RunFact(id="r", notes=notes)), "run").notes
    assert read == {"int": 3, "float": float("inf"), "long": 0.5, "flag": True, "odd": "(1, 2)"}
    assert type(read["flag"]) is bool


def test_unknown_keys_are_ignored_and_known_ones_defaulted() -> None:
    assert codec.decode(RunFact, '{"id": "r", "moon": [1]}', "run") == RunFact(id="r")


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        (RunFact, "{}", "run.id: missing"),
        (RunFact, '{"id": 3}', "run.id: expected text, found 3"),
        (RunFact, '{"id": "r", "steps": true}', "run.steps: expected a whole number, found True"),
        (RunFact, '{"id": "r", "steps": 1.0}', "run.steps: expected a whole number, found 1.0"),
        (RunFact, '{"id": "r", "compiled": 1}', "run.compiled: expected true or false"),
        (RunFact, '{"id": "r", "command": "x"}', "run.command: expected a list, found 'x'"),
        (RunFact, '{"id": "r", "command": [null]}', r"run.command\[0\]: expected text"),
        (RunFact, '{"id": "r", "notes": {"a": [1]}}', "run.notes.a: expected text, a number"),
        (RunFact, '{"id": "r", "notes": []}', r"run.notes: expected an object, found \[\]"),
        (Overhead, '{"seconds": "fast"}', "run.seconds: expected a number, found 'fast'"),
        (Overhead, '{"seconds": false}', "run.seconds: expected a number, found False"),
        (Overhead, '{"seconds": 1e999}', "run.seconds: expected a number, found inf"),
        (Overhead, '{"seconds": 1' + "0" * 400 + "}", "run.seconds: expected a number, found 1000"),
        (Overhead, '{"seconds": NaN}', "run: not valid JSON"),
        (Overhead, '{"seconds": 1', "run: not valid JSON"),
        (Overhead, "[" * 100_000, "run: not valid JSON"),
        (Overhead, "[]", r"run: expected an object, found \[\]"),
        (Overhead, None, "run: expected JSON text, found None"),
        (LossFact, '{"broadcast": [[1], [1], [1]]}', "run.broadcast: expected a list of 2"),
        (LossFact, '{"target": {"shape": ["a"]}}', r"run.target.shape\[0\]: expected a whole"),
        (
            SemanticEvent,
            '{"id": "e", "kind": "x", "where": "", "step": 1, "before": "", "after": ""}',
            "run.kind: expected one of gradient_health_transition, .*, found 'x'",
        ),
    ],
)
def test_wrong_content_is_named(kind: type[Any], text: object, complaint: str) -> None:
    with pytest.raises(RunFileError, match=complaint):
        codec.decode(kind, text, "run")


def test_place_in_a_list_is_named() -> None:
    with pytest.raises(RunFileError, match=r"params\[1\].shape: expected a list, found 3"):
        codec.decode_all(ParamFact, '[{"name": "a"}, {"name": "b", "shape": 3}]', "params")


@pytest.mark.parametrize("kind", KINDS)
def test_odd_values_are_read_or_refused_by_name(kind: type[Any]) -> None:
    refused = 0
    for name in kind.__dataclass_fields__:
        for odd in ODD:
            valid = json.loads(codec.encode(VALID[kind]))
            try:
                assert isinstance(codec.decode(kind, json.dumps(valid | {name: odd}), "x"), kind)
            except RunFileError as error:
                refused += 1
                assert str(error).startswith(f"x.{name}")  # noqa: PT017
    assert refused >= len(kind.__dataclass_fields__) * len(ODD) / 2


def test_storable_text_keeps_all_but_lone_surrogates() -> None:
    assert codec.storable("blöck\0.\U0001f600") == "blöck\0.\U0001f600"
    assert codec.storable("a\ud800") == "a\\ud800"
