"""The text report: what it says first, and that it stays readable."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.core.facts import Gap
from neuraldbg.report.text import gaps, render

from .samples import ALL, facts, failed, healthy, together, unseen

EXPECTED = Path(__file__).parent / "expected"


@pytest.mark.parametrize("name", ALL)
def test_the_report_is_as_expected(name: str) -> None:
    """Set UPDATE_EXPECTED=1 to write the files anew, then read the difference."""
    path = EXPECTED / f"{name}.txt"
    text = render(ALL[name]())
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_no_line_is_wider_than_asked_and_all_is_printable(make: Callable[[], Diagnosis]) -> None:
    for line in render(make(), width=60).splitlines():
        assert line.isprintable()
        assert len(line) <= 60 or line.startswith("  neuraldbg ")


def test_the_verdict_comes_first() -> None:
    assert render(failed()).startswith("FAILED: The loss became NaN at step 21.\n")
    assert render(healthy()).startswith("HEALTHY: nothing suspicious in 400 steps.")


def test_a_healthy_run_is_quiet() -> None:
    assert len(render(healthy()).splitlines()) <= 4


def test_a_run_in_which_nothing_was_seen_is_not_called_healthy() -> None:
    assert "HEALTHY" not in render(unseen())
    assert render(unseen()).startswith("NOTHING SEEN")


def test_the_strongest_evidence_comes_first() -> None:
    text = render(failed())
    assert text.index("31 times") < text.index("8.1e5") < text.index("NaN from step 21 on")


def test_two_likely_faults_stand_side_by_side() -> None:
    text = render(together())
    assert "2 faults are likely" in text
    assert "Fault 2 of 2" in text
    assert "What else it could be" not in text


def test_a_single_unlikely_guess_is_still_explained() -> None:
    guess = CausalHypothesis("init_too_large", 0.31, summary="Weights start too large")
    text = render(Diagnosis(facts(), "suspect", (guess,)))
    assert "possible (0.31)" in text


def test_the_run_is_named_as_the_user_named_it() -> None:
    assert "neuraldbg explain 'my run.db' --json" in render(failed(), run="my run.db")


def test_gaps_of_one_kind_are_one_line() -> None:
    found = [Gap(f"gradients of layers.{i}.w", "compiled") for i in range(40)]
    assert gaps(found) == ["gradients of layers.0.w ... layers.39.w (40): compiled"]


def test_many_kinds_of_gaps_are_counted() -> None:
    said = gaps([Gap(f"thing{i}", f"reason{i}") for i in range(30)])
    assert len(said) == 9
    assert said[-1].startswith("and 22 more")


def test_str_of_a_diagnosis_is_the_report() -> None:
    assert str(failed()) == render(failed())


def test_a_diagnosis_without_words_still_makes_a_report() -> None:
    bare = Diagnosis(facts(), "failed", (CausalHypothesis("lr_too_high", 0.9),))
    text = render(replace(bare, headline=""))
    assert text.startswith("FAILED: 1 likely fault in 400 steps.")
    assert "lr too high [lr_too_high]" in text


@pytest.mark.parametrize(
    "command", [("train.py",), ("-m", "train"), ("-c",), ("ipykernel_launcher.py",)]
)
def test_verify_is_suggested_where_there_is_a_script(command: tuple[str, ...]) -> None:
    found = failed()
    known = replace(
        found, facts=replace(found.facts, run=replace(found.facts.run, command=command))
    )
    assert ("neuraldbg verify" in render(known)) == (command in (("train.py",), ("-m", "train")))
    tested = tuple(replace(h, experiment={"result": "refuted"}) for h in known.hypotheses)
    assert "neuraldbg verify" not in render(replace(known, hypotheses=tested))
    assert "neuraldbg report" in render(known)


def test_a_cause_that_nothing_can_test_is_not_to_be_verified() -> None:
    text = render(Diagnosis(facts(), "suspect", (CausalHypothesis("label_noise_of_mine", 0.7),)))
    assert "neuraldbg verify" not in text


def test_what_a_healthy_run_did_is_a_sentence() -> None:
    known = replace(healthy(), headline="the loss ends at 0.1")
    assert render(known).splitlines()[0].endswith("in 400 steps. The loss ends at 0.1.")
