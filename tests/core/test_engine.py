"""From a record to a diagnosis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from neuraldbg import report
from neuraldbg.core.causes import CAUSES, Finding, all_causes, cause, evidence
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.engine import HYPOTHESES, diagnose, early_events, merge
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Facts, Gap, RunFact
from neuraldbg.core.infer import REPORTED
from neuraldbg.core.record import Record
from neuraldbg.core.view import View

from .records import Draft, classifier, deep, healthy_record, regression

SCHEMA = json.loads(
    (Path(report.__file__).parent / "schema" / "diagnosis.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
NAMED = "a test's own cause"


def wrong() -> Draft:
    """A run with two faults at once."""
    draft = classifier().stays().of_optimizer("0", grad_carried=2.0)
    draft.module("out", "Softmax")
    return draft.change_loss(last_op="Softmax")


@pytest.fixture
def registered() -> Iterator[None]:
    """A place for causes that are gone after the test."""
    all_causes()
    kept = dict(CAUSES)
    yield
    CAUSES.clear()
    CAUSES.update(kept)


def event(id: str, step: int = 5, after: str = "dead", where: str = "fc1") -> SemanticEvent:
    """An event of an activation."""
    return SemanticEvent(id, EventType.ACTIVATION, where, step, "healthy", after)


# -- verdict -------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", [classifier(), regression(), deep(12), classifier(steps=12)])
def test_a_healthy_run_is_quiet(draft: Draft) -> None:
    found = diagnose(draft.build())
    assert found.verdict == "healthy"
    assert found.hypotheses == ()
    assert found.couplings == ()
    assert found.gaps == ()
    assert found.events == ()


@pytest.mark.parametrize(
    "draft",
    [
        classifier().change_optimizer("AdamW", lr=1e-3, weight_decay=0.01, eps=1e-8),
        classifier().module("norm", "LayerNorm", before="act1"),
        classifier().module("drop", "Dropout", before="fc3", p=0.5),
        classifier().of_optimizer("0", clip_norm=np.full(200, 3.0), clip_limit=np.full(200, 1.0)),
        classifier().of_param("*.weight", update_ratio=0.1),
        classifier().of_module("act1", act_negative_units=0.95),
        classifier().of_module("act1", act_flat=0.7),
        classifier().of_module("fc1", grad_rms=1e-7),
        classifier().change_loss(kind="custom", target=None, prediction=None),
        classifier().notes(no_grad_forwards=50, no_grad_forwards_in_train_mode=0),
    ],
    ids=[
        *("adam", "norm", "dropout", "clipping", "large-updates", "dead", "flat", "vanishing"),
        *("own-loss", "evaluated"),
    ],
)
def test_what_healthy_runs_may_do_is_no_fault(draft: Draft) -> None:
    found = diagnose(draft.build())
    assert [h.cause for h in found.hypotheses] == []
    assert found.verdict == "healthy"


def test_a_fault_in_a_run_that_fails_is_a_failure() -> None:
    assert diagnose(wrong().build()).verdict == "failed"


def test_a_fault_in_a_run_that_learns_is_a_suspicion() -> None:
    found = diagnose(classifier().of_optimizer("0", grad_carried=2.0).build())
    assert found.verdict == "suspect"
    assert found.hypotheses


@pytest.mark.parametrize("draft", [classifier().breaks(100), classifier().diverges()])
def test_a_run_that_broke_down_is_not_called_healthy_for_want_of_a_sure_cause(
    draft: Draft,
) -> None:
    found = diagnose(draft.build())
    assert found.verdict != "healthy"
    assert found.hypotheses


def test_what_is_reported_reaches_the_threshold_and_comes_in_order() -> None:
    found = [h.confidence for h in diagnose(wrong().build()).hypotheses]
    assert found == sorted(found, reverse=True)
    assert all(REPORTED <= x <= 1.0 for x in found)


def test_two_faults_that_are_seen_directly_are_both_told() -> None:
    found = [h.cause for h in diagnose(wrong().build()).hypotheses]
    assert found[:2] == ["missing_zero_grad", "output_activation_mismatch"]


@pytest.mark.usefixtures("registered")
def test_a_report_stays_readable_when_much_is_wrong() -> None:
    for i in range(HYPOTHESES + 3):
        cause(f"{NAMED} {i}", NAMED, repair="r")(lambda _: Finding((evidence("seen", 9.0),)))
    assert len(diagnose(healthy_record()).hypotheses) == HYPOTHESES


# -- hypotheses ----------------------------------------------------------------------------


def test_a_hypothesis_has_mechanism_evidence_and_repair() -> None:
    best = diagnose(wrong().build()).hypotheses[0]
    declared = all_causes()[best.cause]
    assert [x.text for x in best.chain][: len(declared.chain)] == list(declared.chain)
    assert best.repair == declared.repair
    assert best.experiment is None
    assert all(e.weight > 0 for e in best.evidence)


def test_the_chain_ends_at_events_of_the_run() -> None:
    found = diagnose(classifier().stays().of_optimizer("0", grad_carried=2.0).build())
    linked = [x.event for x in found.hypotheses[0].chain if x.event]
    assert linked
    assert set(linked) <= {e.id for e in found.events}


def test_what_speaks_against_is_kept_apart() -> None:
    draft = classifier().change_optimizer("Adam", lr=1e-3).stays()
    draft.of_optimizer("0", clip_norm=np.full(200, 2.0), clip_limit=np.full(200, 1e-4))
    best = next(h for h in diagnose(draft.build()).hypotheses if h.cause == "excessive_clipping")
    assert best.against
    assert all(e.weight < 0 for e in best.against)


@pytest.mark.usefixtures("registered")
def test_a_finding_may_have_a_repair_of_its_own_and_needs_no_summary() -> None:
    cause(NAMED, "The title.", repair="general")(
        lambda _: Finding((evidence("seen", 12.0),), ("", "fc1"), repair="particular")
    )
    best = diagnose(healthy_record()).hypotheses[0]
    assert (best.summary, best.repair, best.where) == ("The title.", "particular", ("fc1",))


def test_evidence_of_the_cause_comes_before_the_symptoms_that_it_explains_and_none_twice() -> None:
    found = diagnose(classifier().stays().change_optimizer("SGD", lr=0.05, momentum=0.999).build())
    best, trouble = found.hypotheses[0], found.headline.partition(" (")[0]
    assert best.cause == "excessive_momentum"
    assert "averages over 1000 steps" in best.evidence[0].text
    assert [e.text for e in best.evidence if trouble in e.text] == [trouble]


# -- isolation -----------------------------------------------------------------------------


@pytest.mark.usefixtures("registered")
def test_a_cause_that_raises_becomes_a_gap_and_hides_nothing() -> None:
    def broken(view: View) -> Finding:
        message = "no such weight"
        raise LookupError(message)

    cause(NAMED, NAMED, repair="r")(broken)
    expected = diagnose(wrong().build())
    assert expected.hypotheses[0].cause == "missing_zero_grad"
    assert expected.gaps == (Gap(f"cause {NAMED}", "LookupError: no such weight"),)
    assert expected.facts.gaps == expected.gaps
    assert diagnose(healthy_record()).verdict == "healthy"


def test_gaps_of_the_run_are_passed_on() -> None:
    draft = classifier()
    draft.gaps.append(Gap("input statistics", "the batch is a custom class"))
    assert diagnose(draft.build()).gaps == tuple(draft.gaps)


# -- events --------------------------------------------------------------------------------


def test_stored_events_join_those_found() -> None:
    kept = event("stored", step=3)
    found = diagnose(classifier().breaks(100).build(), [kept])
    assert kept in found.events
    assert "nonfinite" in [e.after for e in found.events]


def test_a_stored_event_wins_over_its_discovery() -> None:
    found, stored = event("found"), event("stored")
    assert merge((found,), [stored]) == (stored,)


def test_a_rediscovery_whose_past_was_thinned_away_is_no_second_event() -> None:
    stored = event("fc1:dead:5")
    assert merge((replace(stored, before="unknown"),), [stored]) == (stored,)


def test_events_that_differ_in_anything_telling_are_kept_apart() -> None:
    first = event("1")
    others = [event("2", step=6), event("3", after="saturated"), event("4", where="fc2")]
    assert len(merge((first,), others)) == 4


def test_merged_events_come_in_order_of_step_and_merging_again_changes_nothing() -> None:
    merged = merge((event("b", 9), event("a", 2)), [event("c", 5)])
    assert [e.step for e in merged] == [2, 5, 9]
    assert merge(merged, merged) == merged


def test_events_before_thinning_are_those_of_the_extraction() -> None:
    record = classifier().breaks(100).build()
    assert [e.id for e in early_events(record)] == [e.id for e in diagnose(record).events]


# -- the rest ------------------------------------------------------------------------------


def test_nothing_seen_is_healthy_and_says_so() -> None:
    found = diagnose(Record(Facts(RunFact(id="r"))))
    assert found.verdict == "healthy"
    assert found.headline == "no training step was seen"


def test_the_headline_tells_what_the_loss_did_over_how_many_steps() -> None:
    assert diagnose(healthy_record()).headline.endswith("(200 steps)")


def test_the_same_record_gives_the_same_diagnosis() -> None:
    assert diagnose(wrong().build()).to_json() == diagnose(wrong().build()).to_json()


@pytest.mark.parametrize(
    "draft", [classifier(), wrong(), classifier().breaks(50), classifier().diverges()]
)
def test_the_result_fits_the_published_schema(draft: Draft) -> None:
    VALIDATOR.validate(json.loads(diagnose(draft.build()).to_json()))


def test_healthy_is_exactly_no_hypothesis() -> None:
    for draft in (classifier(), wrong(), classifier().stays(), classifier().diverges()):
        found: Diagnosis = diagnose(draft.build())
        assert (found.verdict == "healthy") == (not found.hypotheses)
