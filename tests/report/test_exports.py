"""Formats for other programs: valid, complete, and not to be broken by a name."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import BufferReader, parquet
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Sarif

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.report import markdown, sarif, tables
from neuraldbg.report.source import Source

from .recorded import bare, record
from .samples import ALL, EVIL, events, evil, failed, healthy

EXPECTED = Path(__file__).parent / "expected"
SCRIPT = """
class Net(nn.Module):
    def __init__(self):
        self.body = nn.Linear(1, 1)
        self.twice = nn.Linear(1, 1)
        self.twice = nn.Linear(1, 1)
        self.size = 3

loss(net(x)).backward()
"""


@pytest.mark.parametrize("name", ALL)
def test_the_markdown_is_as_expected(name: str) -> None:
    """Set UPDATE_EXPECTED=1 to write the files anew, then read the difference."""
    path = EXPECTED / f"{name}.md"
    text = markdown.render(ALL[name]())
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_markdown_of_a_healthy_run_says_so_in_one_line_first() -> None:
    assert markdown.render(healthy()).startswith("### ✅ HEALTHY: nothing suspicious in 400 steps.")


def test_no_name_becomes_markup_in_markdown() -> None:
    text = markdown.render(evil())
    assert "<b>" not in text
    assert "</script>" not in text
    assert "@" not in markdown.escape("ask @everyone")


def test_every_reading_is_in_the_csv_also_those_that_are_no_numbers() -> None:
    known = record()
    rows = list(csv.DictReader(io.StringIO(tables.readings_csv(known))))
    assert len(rows) == sum(map(len, known.channels.values()))
    last = [r for r in rows if (r["where"], r["metric"]) == ("blocks.0.weight", "grad_norm")][-2:]
    assert [(r["step"], r["value"]) for r in last] == [("38", "nan"), ("39", "inf")]


def test_the_parquet_file_holds_what_the_csv_holds() -> None:
    known = record()
    rows = list(csv.DictReader(io.StringIO(tables.readings_csv(known))))
    table = parquet.read_table(BufferReader(tables.readings_parquet(known)))
    assert table.column_names == list(tables.READINGS)
    assert table.column("where").to_pylist() == [row["where"] for row in rows]
    assert table.column("value").null_count == 0
    values = np.array([float(row["value"]) for row in rows])
    assert np.array_equal(table.column("value").to_numpy(), values, equal_nan=True)


def test_events_are_in_both_tables() -> None:
    happened = events()
    rows = list(csv.DictReader(io.StringIO(tables.events_csv(happened))))
    table = parquet.read_table(BufferReader(tables.events_parquet(happened))).to_pylist()
    assert [r["id"] for r in rows] == [r["id"] for r in table] == [e.id for e in happened]
    assert json.loads(table[0]["metadata"])["ratio"] == "inf"


def test_tables_of_nothing_have_a_head() -> None:
    assert tables.readings_csv(bare()) == "kind,where,metric,step,value\n"
    assert parquet.read_table(BufferReader(tables.readings_parquet(bare()))).num_rows == 0
    assert parquet.read_table(BufferReader(tables.events_parquet(()))).num_rows == 0


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_sarif_holds_what_its_readers_need(make: Callable[[], Diagnosis]) -> None:
    diagnosis = make()
    log = json.loads(sarif.dumps(diagnosis, lambda _: ("train.py", 3)))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(diagnosis.hypotheses)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("note", "warning", "error")
        assert result["message"]["text"]
        assert len(result["partialFingerprints"]["causeAndPlace/v1"]) == 32
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "train.py"
        assert place["region"]["startLine"] == 3


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
@pytest.mark.parametrize("at", [None, ("src/train me.py", 3)])
def test_sarif_is_as_the_published_schema_wants_it(
    make: Callable[[], Diagnosis], at: tuple[str, int] | None
) -> None:
    """The models are generated from `sarif-schema-2.1.0.json` and forbid what it does not name."""
    log = json.loads(sarif.dumps(make(), lambda _: at))
    assert Sarif.model_validate(log).version.value == "2.1.0"


def test_a_file_is_named_by_a_uri() -> None:
    (run,) = sarif.log(failed(), lambda _: ("src/train me.py", 3))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/train%20me.py"


def test_the_published_schema_would_find_a_mistake() -> None:
    log = sarif.log(failed())
    log["runs"][0]["results"][0]["lineNumber"] = 3
    with pytest.raises(ValueError, match="lineNumber"):
        Sarif.model_validate(log)


def test_sarif_rules_have_help_and_levels_follow_the_verdict() -> None:
    (run,) = sarif.log(failed())["runs"]
    assert all(rule["help"]["text"] for rule in run["tool"]["driver"]["rules"][:1])
    assert [result["level"] for result in run["results"]] == ["error", "note", "note"]


def test_sarif_invents_no_line() -> None:
    (run,) = sarif.log(failed())["runs"]
    assert not any("physicalLocation" in p for r in run["results"] for p in r["locations"])


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("body",), 4),
        (("blocks.3.body.weight",), 4),
        (("twice",), None),
        (("size",), None),
        ((EVIL,), None),
        ((), 9),
    ],
)
def test_a_line_is_told_only_where_there_is_just_one(
    where: tuple[str, ...], line: int | None
) -> None:
    assert Source(SCRIPT).line(where) == line


def test_a_script_that_is_no_python_has_no_lines() -> None:
    assert Source("def (").line(()) is None
