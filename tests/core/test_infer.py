"""Abduction: weighing, explaining away, isolation of what fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.causes import CAUSES, PRIOR, Finding, all_causes, cause, evidence
from neuraldbg.core.detect import extract
from neuraldbg.core.infer import DIRECT, Scored, explain_away, weigh_all, yield_upstream
from neuraldbg.core.symptoms import Symptom
from neuraldbg.core.view import View

from .records import Draft, classifier

SEEN = {name: Symptom(name, 0.5, name) for name in ("a", "b", "c")}


def scored(
    name: str, score: float, explains: str = "", direct: float = 1.0, yields_to: str = ""
) -> Scored:
    """A cause with a score and the symptoms that it explains."""
    cause(name, name, explains=explains, repair="nothing", yields_to=yields_to)(lambda _: None)
    declared = CAUSES.pop(name)
    finding = Finding((evidence("seen", direct),))
    return Scored(declared, finding, score, tuple(SEEN[x] for x in explains.split()))


def scores(ranked: list[Scored]) -> dict[str, float]:
    """The scores after explaining away."""
    return {s.cause.id: s.score for s in explain_away(ranked)}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cause is known but those that the test declares."""
    all_causes()
    kept = dict(CAUSES)
    CAUSES.clear()
    yield
    CAUSES.clear()
    CAUSES.update(kept)


def declare(name: str, weigh: Callable[[View], Finding | None], explains: str = "") -> None:
    """Register a cause."""
    cause(name, name, explains=explains, repair="nothing")(weigh)


def ranking(draft: Draft) -> tuple[list[Scored], list[str]]:
    """All causes that apply, and the ids of those that raised."""
    record, failed = draft.build(), []
    found = weigh_all(View(record, extract(record)), lambda id, _: failed.append(id))
    return found, failed


# -- explaining away -----------------------------------------------------------------------


def test_a_rival_of_the_same_symptoms_is_discounted() -> None:
    found = scores([scored("best", 4.0, "a b"), scored("rival", 3.0, "a b")])
    assert found["best"] == 4.0
    assert found["rival"] < 3.0


def test_the_better_the_best_the_less_room_for_its_rival() -> None:
    weak = scores([scored("best", 3.1, "a"), scored("rival", 3.0, "a")])
    strong = scores([scored("best", 9.0, "a"), scored("rival", 3.0, "a")])
    assert strong["rival"] < weak["rival"]


def test_a_cause_of_other_symptoms_stands_beside_the_best() -> None:
    found = scores([scored("best", 4.0, "a"), scored("other", 3.0, "b")])
    assert found == {"best": 4.0, "other": 3.0}


def test_a_cause_that_is_seen_directly_is_not_explained_away() -> None:
    found = scores([scored("best", 4.0, "a"), scored("seen", 3.0, "a", direct=DIRECT)])
    assert found["seen"] == 3.0


def test_an_unlikely_best_explains_nothing_away() -> None:
    found = scores([scored("best", -1.0, "a"), scored("rival", -2.0, "a")])
    assert found["rival"] == -2.0


def test_a_cause_without_symptoms_is_discounted_behind_a_better_one() -> None:
    found = scores([scored("best", 4.0, "a"), scored("silent", 3.0, "")])
    assert found["silent"] < 3.0
    assert scores([scored("silent", 3.0, "")]) == {"silent": 3.0}


def test_few_causes_that_cover_everything_beat_many_that_cover_a_part() -> None:
    ranked = [scored("all", 4.0, "a b c"), scored("x", 3.5, "a"), scored("y", 3.2, "b c")]
    found = explain_away(ranked)
    assert found[0].cause.id == "all"
    assert all(s.score < 3.2 for s in found[1:])


def test_equal_scores_come_in_the_order_of_their_names() -> None:
    ranked = [scored("a1", 2.0, "a", DIRECT), scored("b1", 2.0, "b", DIRECT)]
    assert [s.cause.id for s in explain_away(ranked)] == ["a1", "b1"]
    assert [s.cause.id for s in explain_away(ranked[::-1])] == ["a1", "b1"]


def test_nothing_is_left_of_nothing() -> None:
    assert explain_away([]) == []


# -- yielding ------------------------------------------------------------------------------


def settled(*found: Scored) -> dict[str, float]:
    """The scores after causes have yielded to those further upstream."""
    return {s.cause.id: s.score for s in yield_upstream(list(found))}


def test_a_cause_yields_to_a_sure_one_upstream() -> None:
    found = settled(scored("down", 6.0, yields_to="up"), scored("up", 5.0))
    assert found["up"] == 5.0
    assert found["down"] < 5.0


def test_a_cause_does_not_yield_to_an_unlikely_one() -> None:
    found = settled(scored("down", 6.0, yields_to="up"), scored("up", -9.0))
    assert found["down"] == pytest.approx(6.0, abs=0.01)


def test_a_cause_does_not_yield_to_one_that_does_not_apply() -> None:
    assert settled(scored("down", 6.0, yields_to="absent")) == {"down": 6.0}


def test_a_cause_yields_once_however_many_are_upstream() -> None:
    one = settled(scored("down", 6.0, yields_to="a"), scored("a", 8.0))
    two = settled(scored("down", 6.0, yields_to="a b"), scored("a", 8.0), scored("b", 8.0))
    assert one["down"] == two["down"]


# -- weighing ------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_evidence_for_and_against_adds_up() -> None:
    declare("both", lambda _: Finding((evidence("for", 3.0), evidence("against", -1.0))))
    declare("none", lambda _: None)
    found, _ = ranking(classifier())
    assert {s.cause.id: s.score for s in found} == {"both": PRIOR + 2.0}


@pytest.mark.usefixtures("alone")
def test_explaining_a_symptom_helps_and_leaving_it_unexplained_hurts() -> None:
    declare("it", lambda _: Finding((evidence("seen", 3.0),)), explains="not_learning")
    (stuck,), (quiet,) = ranking(classifier().stays())[0], ranking(classifier())[0]
    (diverged,) = ranking(classifier().diverges())[0]
    assert quiet.score == PRIOR + 3.0
    assert stuck.score == pytest.approx(quiet.score + stuck.explained[0].weight)
    assert diverged.score < quiet.score
    assert [x.name for x in stuck.explained] == ["not_learning"]
    assert quiet.explained == diverged.explained == ()


@pytest.mark.usefixtures("alone")
def test_a_cause_that_raises_is_told_and_does_not_hide_the_others() -> None:
    def broken(view: View) -> Finding:
        message = "no such weight"
        raise LookupError(message)

    declare("broken", broken)
    declare("fine", lambda _: Finding((evidence("seen", 9.0),)))
    found, failed = ranking(classifier())
    assert failed == ["broken"]
    assert [s.cause.id for s in found] == ["fine"]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_no_number_is_told_and_does_not_disturb_the_others(
    weight: float,
) -> None:
    declare("odd", lambda _: Finding((evidence("seen", weight),)))
    declare("fine", lambda _: Finding((evidence("seen", 9.0),)))
    found, failed = ranking(classifier())
    assert failed == ["odd"]
    assert [s.cause.id for s in found] == ["fine"]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("step", "loss"), [(0, 8.0), (1, 0.0)])
def test_what_breaks_before_the_first_update_is_no_work_of_an_update(
    step: int, loss: float
) -> None:
    for name, late in (("at once", False), ("by updates", True)):
        cause(name, name, repair="nothing", needs_update=late)(
            lambda _: Finding((evidence("seen", 9.0),))
        )
    found = {s.cause.id: s.score for s in ranking(classifier().breaks(step))[0]}
    assert found["at once"] - found["by updates"] == pytest.approx(loss)


def test_the_best_comes_first() -> None:
    found, failed = ranking(classifier().stays().of_optimizer("0", grad_carried=2.0))
    assert failed == []
    assert [s.score for s in found] == sorted((s.score for s in found), reverse=True)
    assert found[0].cause.id == "missing_zero_grad"


# -- confidence ----------------------------------------------------------------------------


@given(st.floats(-1e4, 1e4))
def test_a_confidence_is_a_probability(score: float) -> None:
    assert 0.0 <= scored("x", score, "").confidence <= 1.0


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_a_higher_score_is_no_lower_confidence(one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert scored("x", low, "").confidence <= scored("x", high, "").confidence
