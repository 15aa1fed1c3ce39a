"""What paired trials are taken to say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.experiments import judge
from neuraldbg.experiments.interventions import interventions_for
from neuraldbg.experiments.judge import Pair, Trials
from neuraldbg.experiments.outcome import Outcome

LR = interventions_for("lr_too_high")[0]


def ran(learnt: float, kind: str = "none", level: float | None = None) -> Outcome:
    """A run that learnt so much."""
    broke = kind not in ("none", "not_learning")
    severity = (1.0 if broke or learnt < 0.05 else 0.0) if level is None else level
    return Outcome(kind, severity, learnt, 2.3, 2.3 * (1 - learnt), None, 4 if broke else None, 99)


def tried(*pairs: tuple[Outcome, Outcome]) -> Trials:
    """Trials with these outcomes, unchanged and changed."""
    return Trials(LR, [Pair(*p) for p in pairs], applied=1)


STUCK, SOUND, NAN = ran(0.01, "not_learning"), ran(0.9), ran(0.0, "nonfinite")


@pytest.mark.parametrize(
    ("unchanged", "changed", "verdict"),
    [
        (STUCK, SOUND, "gone"),
        (STUCK, STUCK, "stayed"),
        (STUCK, ran(0.2), "gone"),  # by the measure that called it a failure
        (STUCK, ran(0.12, "not_learning", 0.2), "unclear"),
        (STUCK, NAN, "stayed"),
        (NAN, SOUND, "gone"),
        (NAN, NAN, "stayed"),
        (NAN, ran(0.0, "not_learning"), "unclear"),  # finite, but it learns nothing either
        (ran(0.6), ran(0.62), "stayed"),
        (ran(0.6), ran(0.9), "gone"),
        (replace(STUCK, others=(1.0,)), replace(STUCK, others=(0.5,)), "unclear"),
        (replace(STUCK, others=(1.0,)), replace(STUCK, others=(math.nan,)), "unclear"),
        (replace(STUCK, others=(1.0,)), replace(STUCK, others=(0.99,)), "stayed"),
        (ran(0.94), ran(0.93), "unclear"),  # training shows no failure that could stay
        (SOUND, ran(0.0, "crashed"), "unclear"),
        (ran(0.0, "crashed"), ran(0.0, "crashed"), "stayed"),
        (ran(0.0, "crashed"), ran(0.02, "not_learning"), "unclear"),  # put off, perhaps
        (replace(ran(0.0, "crashed"), onset=0), ran(0.02, "not_learning"), "gone"),
        (replace(ran(0.0, "crashed"), onset=0), NAN, "stayed"),
    ],
)
def test_a_pair(unchanged: Outcome, changed: Outcome, verdict: str) -> None:
    assert Pair(unchanged, changed).verdict == verdict


BLOWN = Outcome("none", 0.0, 0.999, 1.3e4, 2.4, None, None, 99)
CALM = Outcome("none", 0.0, 0.9, 2.2, 0.2, None, None, 99)


def test_a_loss_that_the_fault_blows_up_at_once_is_compared_where_it_ends() -> None:
    """By the share of its own first loss the failing run learnt more."""
    assert Pair(BLOWN, CALM).verdict == "gone"
    assert Pair(BLOWN, CALM, rescales=True).verdict == "unclear"


def test_a_loss_that_ends_above_all_that_it_was_is_no_cure() -> None:
    """Where the change moved the targets, too, much is learnt of a loss that it made itself."""
    spoilt = Outcome("none", 0.0, 0.9, 2.4e3, 185.0, None, None, 99)
    stuck = Outcome("not_learning", 0.8, 0.0, 7.1, 7.03, None, 0, 99)
    assert Pair(stuck, spoilt).verdict == "unclear"
    assert Pair(stuck, spoilt, rescales=True).verdict == "gone"


@pytest.mark.parametrize(
    ("deaf", "verdict"), [(0, "gone"), (2, "gone"), (3, "unclear"), (8, "stayed"), (9, "stayed")]
)
def test_a_part_that_gets_no_gradient_is_judged_by_that_where_the_loss_falls(
    deaf: int, verdict: str
) -> None:
    before, after = replace(SOUND, deaf=8), replace(SOUND, deaf=deaf)
    assert Pair(before, after).verdict == verdict
    text = judge.sentence(tried((before, after)))
    assert text.endswith("and 8 weights never got a gradient")
    assert Pair(replace(STUCK, deaf=2), SOUND).verdict == "gone"  # there the loss tells
    assert Pair(replace(STUCK, deaf=2), STUCK).verdict == "stayed"


def test_the_majority_of_seeds_decides() -> None:
    assert tried((STUCK, SOUND), (STUCK, SOUND), (STUCK, STUCK)).result == "confirmed"
    assert tried((STUCK, SOUND), (STUCK, STUCK), (STUCK, STUCK)).result == "refuted"
    assert tried((STUCK, SOUND), (STUCK, STUCK)).result == "inconclusive"


def test_what_could_not_be_applied_says_nothing() -> None:
    assert Trials(LR, [], "it could not be applied: no step").result == "inconclusive"


def test_a_cause_is_refuted_only_if_everything_was_tried() -> None:
    no = tried((STUCK, STUCK))
    idle = Trials(LR, [], "it could not be applied", idle=True)
    late = Trials(LR, [], "the budget ended before it was tried")
    assert judge.best([no, idle]) is no
    assert judge.best([no, late]) is late
    yes = tried((STUCK, SOUND))
    assert judge.best([no, late, yes]) is yes
    assert judge.best([]) is None


def test_the_interval_is_students_t() -> None:
    trials = tried((ran(0.0), ran(0.5)), (ran(0.0), ran(0.7)))
    # n = 2: mean 0.6, standard error 0.1, t(1 degree, 97.5 %) = 12.71.
    assert trials.interval == pytest.approx((0.6 - 1.271, 0.6 + 1.271), abs=1e-6)
    assert tried((STUCK, SOUND)).interval is None


def test_seeds_without_an_evaluation_loss_have_no_interval() -> None:
    unseen = Trials(LR, [Pair(STUCK, SOUND, evaluates=True)] * 2, applied=1)
    assert unseen.result == "inconclusive"
    data = judge.as_dict(unseen, reproduced=True)
    assert data["effect"]["interval"] is None
    assert math.isnan(data["effect"]["learnt_more"])
    assert "gained" not in data["text"]


@given(st.floats(0.01, 0.99), st.floats(0, 4))
def test_belief_moves_the_right_way_and_back(confidence: float, by: float) -> None:
    up = judge.updated(confidence, by)
    assert up >= confidence - 1e-12
    assert judge.updated(up, -by) == pytest.approx(confidence, abs=1e-3)


def test_a_weaker_cure_counts_less() -> None:
    strong, weak = tried((STUCK, SOUND)), tried((STUCK, ran(0.3)))
    assert judge.shift(strong, strong.effect) > judge.shift(weak, strong.effect) > 0
    assert judge.shift(tried((STUCK, STUCK)), 1.0) < 0


def test_the_sentence_has_the_numbers() -> None:
    other = ran(0.88)
    text = judge.sentence(tried((STUCK, SOUND), (STUCK, SOUND), (STUCK, other)))
    assert text == (
        "with every learning rate multiplied by 0.1, the loss went from 2.3 to 0.23 (the failure "
        "was gone in 3 of 3 seeds); unchanged, the loss went from 2.3 to 2.28; gained: 89 % of "
        "what was left to learn (95 % interval over seeds 86 % to 92 %)"
    )
    assert "gained" not in judge.sentence(tried((STUCK, SOUND)))
    assert "not finite from step 4 on" in judge.sentence(tried((NAN, SOUND)))


def test_the_result_is_plain_data_that_survives_json() -> None:
    from neuraldbg.report.json import encode

    lost = Outcome("nonfinite", 1.0, 0.0, 2.3, math.nan, None, 4, 99)
    data = judge.as_dict(tried((lost, SOUND)), reproduced=True)
    assert '"nan"' in encode(data)
    assert data["result"] == "confirmed"
    assert data["necessary"]
    assert judge.as_dict(tried((lost, SOUND)), reproduced=False)["result"] == "inconclusive"
