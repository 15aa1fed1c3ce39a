"""The JSON form against its published schema, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg import report
from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis, Evidence
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Gap, Overhead
from neuraldbg.core.privacy import redact
from neuraldbg.errors import RunFileError
from neuraldbg.report.json import clean, dumps, encode, facts, to_dict
from neuraldbg.report.parse import from_dict, loads

from .samples import ALL, failed, healthy
from .samples import facts as sample_facts

SCHEMA = json.loads(
    (Path(report.__file__).parent / "schema" / "diagnosis.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def strictly(text: str) -> Any:
    """Parse JSON, refusing the tokens NaN and Infinity."""

    def refuse(token: str) -> float:
        raise AssertionError(token)

    return json.loads(text, parse_constant=refuse)


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_every_diagnosis_fits_the_schema(make: Callable[[], Diagnosis]) -> None:
    VALIDATOR.validate(strictly(dumps(make())))


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_to_json_of_a_diagnosis_is_the_same_text(make: Callable[[], Diagnosis]) -> None:
    assert make().to_json() == dumps(make())


def test_the_keys_of_the_contract() -> None:
    data = to_dict(failed())
    assert {"schema_version", "run", "verdict", "hypotheses", "events"} <= set(data)
    assert {"couplings", "gaps", "overhead", "headline"} <= set(data)
    assert {"id", "kind", "where", "step", "from", "to", "confidence", "metadata"} == set(
        data["events"][0]
    )
    assert data["run"]["finished"] == "exception"
    assert data["run"]["exception"] == "ValueError: loss is nan"
    assert data["hypotheses"][0]["chain"][1] == {
        "event": "g0",
        "text": "the gradient of blocks.0 explodes",
    }


def test_nonfinite_numbers_are_strings() -> None:
    data = to_dict(failed())
    assert data["events"][0]["metadata"]["ratio"] == "inf"
    assert data["hypotheses"][0]["evidence"][0]["values"]["loss"] == "nan"


def test_a_run_that_was_cut_off_counts_as_interrupted() -> None:
    assert to_dict(Diagnosis(sample_facts(finished=None), "healthy"))["run"]["finished"] == (
        "interrupted"
    )


def test_no_working_directory_and_no_secret_gets_out() -> None:
    for text in (dumps(failed()), encode(facts(failed().facts))):
        assert "private" not in text
        assert "sesame" not in text


def test_the_home_directory_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert redact(["/home/ada/x.py", "/home/adam/x.py"]) == ["~/x.py", "/home/adam/x.py"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["t.py", "--token", "x", "y"], ["t.py", "--token", "***", "y"]),
        (["t.py", "--hf-token=x"], ["t.py", "--hf-token=***"]),
        (["t.py", "--password", "--fast"], ["t.py", "--password", "--fast"]),
        (["t.py", "--lr", "0.1"], ["t.py", "--lr", "0.1"]),
    ],
)
def test_secrets_are_masked(command: list[str], shown: list[str]) -> None:
    assert redact(command) == shown


def test_numbers_of_numpy_become_plain() -> None:
    found = clean({"i": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True), "n": np.nan})
    assert found == {"i": 3, "f": 0.5, "b": True, "n": "nan"}
    assert type(found["b"]) is bool


def test_an_overhead_that_means_nothing_is_null() -> None:
    data = to_dict(Diagnosis(sample_facts(), "healthy", overhead=Overhead(math.inf, 0.0)))
    assert data["overhead"]["ratio"] is None


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_there_and_back(make: Callable[[], Diagnosis]) -> None:
    data = to_dict(make())
    again = to_dict(from_dict(data))
    assert again == data


numbers = st.floats() | st.integers(-(2**53), 2**53) | st.booleans() | st.none()
sentences = st.text(max_size=20).filter(lambda t: t not in {"nan", "inf", "-inf"})
values = st.dictionaries(st.text(max_size=5), numbers | sentences, max_size=3)
share = st.floats(0, 1)
steps = st.integers(0, 10**6)
evidence = st.builds(
    Evidence, sentences, st.floats(), st.none() | sentences, st.none() | steps, values
)
happenings = st.builds(
    SemanticEvent,
    st.text(min_size=1, max_size=5),
    st.sampled_from(EventType),
    sentences,
    steps,
    sentences,
    sentences,
    share,
    values,
)
hypotheses = st.builds(
    CausalHypothesis,
    st.text(min_size=1, max_size=9),
    share,
    st.lists(sentences, max_size=3).map(tuple),
    st.none() | steps,
    sentences,
    evidence=st.lists(evidence, max_size=3).map(tuple),
    against=st.lists(evidence, max_size=2).map(tuple),
    repair=sentences,
)


@given(
    st.lists(hypotheses, max_size=3).map(tuple),
    st.lists(happenings, max_size=3).map(tuple),
    st.lists(st.builds(Gap, sentences, sentences), max_size=3).map(tuple),
    sentences,
)
def test_whatever_was_found_fits_the_schema_and_comes_back(
    found: tuple[CausalHypothesis, ...],
    happened: tuple[SemanticEvent, ...],
    gaps: tuple[Gap, ...],
    headline: str,
) -> None:
    verdict = "failed" if found else "healthy"
    made = Diagnosis(sample_facts(), verdict, found, happened, (), gaps, headline=headline)
    data = strictly(dumps(made))
    VALIDATOR.validate(data)
    assert to_dict(loads(json.dumps(data))) == data


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "schema_version is None"),
        ('{"schema_version": 2}', "schema_version is 2"),
        ('{"schema_version": 1}', "damaged"),
        ('{"schema_version": 1, "gaps": 3}', "damaged"),
    ],
)
def test_what_is_no_diagnosis_is_refused(text: str, says: str) -> None:
    with pytest.raises(RunFileError, match=says):
        loads(text)


def test_the_schema_refuses_a_healthy_run_with_a_hypothesis() -> None:
    data = {**to_dict(failed()), "verdict": "healthy"}
    assert not VALIDATOR.is_valid(data)
    assert not VALIDATOR.is_valid({**to_dict(healthy()), "verdict": "failed"})
