"""Assertions hold, or say what was found instead."""

from __future__ import annotations

import pytest

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis, Evidence
from neuraldbg.core.facts import Facts, Gap, RunFact
from neuraldbg.errors import UsageError
from neuraldbg.testing import assert_explains, assert_healthy


def diagnosis(*hypotheses: CausalHypothesis, gaps: tuple[Gap, ...] = ()) -> Diagnosis:
    verdict = "failed" if hypotheses else "healthy"
    headline = "the loss rises from 2.3 to 900 (200 steps)"
    return Diagnosis(Facts(RunFact("r")), verdict, hypotheses, gaps=gaps, headline=headline)


RATE = CausalHypothesis(
    cause="lr_too_high",
    confidence=0.91,
    where=("features.conv1",),
    summary="The learning rate 5 is too high.",
    evidence=(Evidence("early updates are 3 of the weight", 4.0),),
    repair="Lower the learning rate to about 0.5.",
)
SCALE = CausalHypothesis(
    cause="init_too_large",
    confidence=0.4,
    summary="fc is initialised too large.",
    against=(Evidence("the first loss 2.3 is sound", -1.5),),
)


def test_silence_is_healthy() -> None:
    assert_healthy(diagnosis())


def test_an_alarm_is_told_with_its_evidence_and_repair() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_healthy(diagnosis(RATE, SCALE))
    message = str(raised.value)
    assert "the verdict is 'failed'" in message
    assert "lr_too_high (0.91): The learning rate 5 is too high." in message
    assert "because early updates are 3 of the weight" in message
    assert "repair: Lower the learning rate to about 0.5." in message
    assert "allow=['lr_too_high']" in message


def test_a_cause_can_be_allowed() -> None:
    assert_healthy(diagnosis(RATE), allow=["lr_too_high"])
    with pytest.raises(AssertionError, match="init_too_large"):
        assert_healthy(diagnosis(RATE, SCALE), allow=["lr_too_high"])


def test_the_first_hypothesis_explains() -> None:
    assert_explains(diagnosis(RATE, SCALE), "lr_too_high")
    assert_explains(diagnosis(RATE, SCALE), "init_too_large", top=2)


@pytest.mark.parametrize("where", ["features.conv1", "features", "features.conv1.weight"])
def test_a_place_is_met_from_inside_and_outside(where: str) -> None:
    assert_explains(diagnosis(RATE), "lr_too_high", where)


def test_another_place_is_told() -> None:
    with pytest.raises(
        AssertionError, match=r"not at 'head': it is said to sit at features\.conv1"
    ):
        assert_explains(diagnosis(RATE), "lr_too_high", "head")
    with pytest.raises(AssertionError, match="nowhere in particular"):
        assert_explains(diagnosis(SCALE), "init_too_large", "head")


def test_a_lower_rank_is_told_with_what_spoke_against() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_explains(diagnosis(RATE, SCALE), "init_too_large")
    message = str(raised.value)
    assert "init_too_large should be first, and is number 2" in message
    assert "against it: the first loss 2.3 is sound" in message
    assert "assert_explains(..., top=2)" in message


def test_a_missing_cause_is_told_with_what_was_found() -> None:
    gap = Gap("modules fc", "never called in a watched training step")
    with pytest.raises(AssertionError) as raised:
        assert_explains(diagnosis(RATE, gaps=(gap,)), "missing_zero_grad")
    message = str(raised.value)
    assert "missing_zero_grad is not among the hypotheses" in message
    assert "the loss rises from 2.3 to 900" in message
    assert "lr_too_high (0.91)" in message
    assert "not observed: modules fc" in message
    assert "It would show as:" in message


def test_silence_where_a_fault_was_expected() -> None:
    with pytest.raises(AssertionError, match="Nothing at all was found"):
        assert_explains(diagnosis(), "missing_zero_grad")


def test_a_misspelt_cause_is_corrected() -> None:
    with pytest.raises(UsageError, match=r"did you mean .*lr_too_high"):
        assert_explains(diagnosis(), "lr_to_high")
    with pytest.raises(UsageError, match="no cause 'xyz'"):
        assert_healthy(diagnosis(), allow=["xyz"])
