"""Figures over rows that can be counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neuraldbg.testing.score import Row, Score, matrix, table

FAULT = Row(
    kind="fault",
    program="digits_mlp",
    operator="rate_too_high",
    strength=10,
    seed=0,
    cause="lr_too_high",
    accepts=("lr_too_high", "exploding_recurrence"),
    suffered=True,
    metric=0.1,
    error=None,
    verdict="failed",
    hypotheses=(("lr_too_high", 0.9),),
)
SECOND = replace(FAULT, hypotheses=(("init_too_large", 0.6), ("exploding_recurrence", 0.3)))
SILENT = replace(FAULT, verdict="healthy", hypotheses=())
HARMLESS = replace(FAULT, suffered=False)
BASE = replace(SILENT, kind="base", operator="none", cause=None, accepts=(), suffered=False)
ALARM = replace(BASE, kind="variation", hypotheses=(("lr_too_low", 0.2),), verdict="suspect")
UNSOUND = replace(BASE, suffered=True)
UNTRAINED = replace(SILENT, verdict="unseen", error="TypeError: no such argument")


@pytest.fixture
def score() -> Score:
    return Score([FAULT, SECOND, SILENT, HARMLESS, BASE, ALARM, UNSOUND, UNTRAINED])


def test_faults_that_hurt_are_counted(score: Score) -> None:
    assert str(score.top(1)) == "1/3 = 0.333"
    assert str(score.top(3)) == "2/3 = 0.667"
    assert score.harmless == [HARMLESS]
    assert score.untrained == [UNTRAINED]


def test_sound_runs_are_asked_for_alarms(score: Score) -> None:
    assert str(score.alarms("base")) == "0/1 = 0.000"
    assert str(score.alarms("variation")) == "1/1 = 1.000"
    assert score.unsound == [UNSOUND]


def test_confidence_is_held_against_truth(score: Score) -> None:
    assert score.claims() == [(0.9, True), (0.6, False), (0.2, False)]
    assert score.calibration_error() == pytest.approx((0.1 + 0.6 + 0.2) / 3)
    assert score.brier() == pytest.approx((0.01 + 0.36 + 0 + 0 + 0.04) / 5)


def test_what_was_said_is_listed_by_cause(score: Score) -> None:
    assert score.confusion() == {"lr_too_high": {"lr_too_high": 1, "init_too_large": 1, "-": 1}}
    text = table(score)
    assert "lr_too_high" in text
    assert "- 1" in text
    assert "digits_mlp/none/0" in text
    assert "init_too_large:1" in matrix(score)


def test_no_rows_give_no_figures() -> None:
    empty = Score([])
    assert str(empty.top(1)) == "0/0"
    assert empty.calibration_error() == empty.brier() == 0.0
    assert "top-1 0/0" in table(empty)
