"""Results of experiments in a diagnosis."""

from __future__ import annotations

from typing import Any

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.core.facts import Facts, RunFact
from neuraldbg.experiments.judge import CONFIRMS, REFUTES
from neuraldbg.experiments.results import apply


def stuck(**confidence: float) -> Diagnosis:
    """A diagnosis of a failed run with these hypotheses, in this order."""
    made = tuple(CausalHypothesis(c, p) for c, p in confidence.items())
    return Diagnosis(Facts(RunFact("run")), "failed", made)


def outcome(cause: str, result: str, shift: float) -> dict[str, Any]:
    return {"cause": cause, "shift": shift, "experiment": {"result": result}}


def told(diagnosis: Diagnosis, *tests: dict[str, Any]) -> tuple[CausalHypothesis, ...]:
    return apply(diagnosis, {"tests": list(tests)}).hypotheses


def test_what_was_refuted_never_comes_first() -> None:
    found = stuck(lr_too_low=0.995, excessive_dropout=0.6)
    first, second = told(found, outcome("lr_too_low", "refuted", REFUTES))
    assert first.cause == "excessive_dropout"
    assert second.cause == "lr_too_low"
    assert second.confidence > first.confidence
    assert second.experiment is not None
    assert second.experiment["confidence_before"] == 0.995


def test_what_was_confirmed_gains_and_the_rest_steps_back() -> None:
    found = stuck(lr_too_low=0.8, excessive_dropout=0.6)
    first, second = told(found, outcome("excessive_dropout", "confirmed", CONFIRMS))
    assert (first.cause, second.cause) == ("excessive_dropout", "lr_too_low")
    assert first.confidence > 0.8
    assert second.confidence < 0.8


def test_where_all_is_refuted_the_likeliest_is_still_told() -> None:
    found = stuck(lr_too_low=0.9, excessive_dropout=0.6)
    tests = [outcome(c, "refuted", REFUTES) for c in ("lr_too_low", "excessive_dropout")]
    assert [h.cause for h in told(found, *tests)] == ["lr_too_low", "excessive_dropout"]
