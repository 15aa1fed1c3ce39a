"""The causal graph: couplings whose numbers agree, and the way back to a root."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.diagnosis import CausalHypothesis, Coupling, Diagnosis, Link
from neuraldbg.core.engine import diagnose
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Facts, RunFact
from neuraldbg.core.graph import MOST, SPAN, couplings, trace
from neuraldbg.core.view import View

from .records import EVERY, classifier

ACT, GRAD, UPDATE, LOSS = (
    EventType.ACTIVATION,
    EventType.GRADIENT,
    EventType.UPDATE,
    EventType.LOSS,
)
# fc1, act1, fc2, act2, fc3 run in this order; the model itself comes first.


def event(
    kind: EventType, where: str, after: str, step: int = 10, **numbers: float
) -> SemanticEvent:
    """An event named after its place."""
    return SemanticEvent(
        f"{kind}:{where}:{after}:{step}", kind, where, step, "healthy", after, 1.0, numbers
    )


def joined(*events: SemanticEvent) -> list[Coupling]:
    """The couplings among events of a three-layer net."""
    return list(couplings(View(classifier().build(), events)))


def mechanisms(*events: SemanticEvent) -> list[tuple[str, str, str]]:
    """Mechanism, from where, to where."""
    by_id = {e.id: e.where for e in events}
    return [(c.mechanism, by_id[c.source], by_id[c.target]) for c in joined(*events)]


# -- mechanisms ----------------------------------------------------------------------------


def test_a_non_finite_activation_spreads_to_the_next_module() -> None:
    events = [event(ACT, x, "nonfinite") for x in ("fc1", "act1", "fc2")]
    assert mechanisms(*events) == [("spreads", "act1", "fc2"), ("spreads", "fc1", "act1")]


def test_a_non_finite_gradient_spreads_to_the_module_before() -> None:
    events = [event(GRAD, x, "nonfinite") for x in ("act1", "fc2")]
    assert mechanisms(*events) == [("spreads", "fc2", "act1")]


def test_non_finite_values_far_apart_or_of_other_kinds_are_not_joined() -> None:
    assert mechanisms(event(ACT, "fc1", "nonfinite"), event(ACT, "fc3", "nonfinite")) == []
    assert mechanisms(event(ACT, "fc1", "nonfinite"), event(GRAD, "act1", "nonfinite")) == []
    assert mechanisms(event(ACT, "x", "nonfinite"), event(ACT, "y", "nonfinite")) == []
    assert mechanisms(event(ACT, "x", "nonfinite"), event(ACT, "fc1", "nonfinite")) == []
    assert mechanisms(event(ACT, "fc1", "dead"), event(ACT, "act1", "nonfinite")) == []


@pytest.mark.parametrize(
    ("state", "number"),
    [("dead", "negative_units"), ("saturated", "flat"), ("collapsed", "constant_units")],
)
@pytest.mark.parametrize("gradient", ["zero", "vanishing"])
def test_a_dead_or_saturated_module_blocks_the_gradient_before_it(
    state: str, number: str, gradient: str
) -> None:
    blocked, starved = event(ACT, "act1", state, **{number: 0.97}), event(GRAD, "fc1", gradient)
    (found,) = joined(blocked, starved)
    assert (found.mechanism, found.source, found.target) == ("blocks", blocked.id, starved.id)
    assert found.agreement == 0.97
    assert "97%" in found.text


def test_a_dead_module_does_not_block_what_comes_after_it_or_far_before() -> None:
    dead = event(ACT, "act1", "dead", negative_units=1.0)
    assert mechanisms(dead, event(GRAD, "fc2", "zero")) == []
    late = event(ACT, "fc3", "dead", negative_units=1.0)
    assert mechanisms(late, event(GRAD, "fc1", "zero")) == []
    assert mechanisms(dead, event(GRAD, "unknown", "zero")) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((ACT, "exploding"), (GRAD, "zero")),
        ((GRAD, "dead"), (GRAD, "zero")),
        ((ACT, "dead"), (GRAD, "exploding")),
        ((ACT, "dead"), (ACT, "zero")),
    ],
)
def test_only_a_flat_activation_blocks_and_only_a_lost_gradient_is_blocked(
    first: tuple[EventType, str], second: tuple[EventType, str]
) -> None:
    giver = event(first[0], "act1", first[1], negative_units=1.0)
    assert mechanisms(giver, event(second[0], "fc1", second[1])) == []


def test_a_share_that_is_no_number_does_not_agree() -> None:
    dead = event(ACT, "act1", "dead", negative_units=float("nan"), flat=0.2)
    (found,) = joined(dead, event(GRAD, "fc1", "zero"))
    assert found.agreement == 0.2


@pytest.mark.parametrize("update", ["frozen", "tiny"])
def test_a_weight_without_gradient_does_not_move(update: str) -> None:
    events = event(GRAD, "fc1", "zero"), event(UPDATE, "fc1.weight", update)
    assert mechanisms(*events) == [("starves", "fc1", "fc1.weight")]
    own = event(GRAD, "fc1.weight", "absent"), event(UPDATE, "fc1.weight", update)
    assert mechanisms(*own) == [("starves", "fc1.weight", "fc1.weight")]


def test_a_gradient_starves_only_its_own_weights() -> None:
    assert mechanisms(event(GRAD, "fc1", "zero"), event(UPDATE, "fc2.weight", "frozen")) == []
    assert mechanisms(event(GRAD, "fc1", "zero"), event(UPDATE, "fc1.weight", "huge")) == []
    assert mechanisms(event(GRAD, "fc1", "exploding"), event(UPDATE, "fc1.weight", "tiny")) == []


def test_a_non_finite_activation_reaches_the_loss() -> None:
    events = event(ACT, "fc3", "nonfinite"), event(LOSS, "loss", "nonfinite")
    assert mechanisms(*events) == [("reaches the loss", "fc3", "loss")]


def test_other_events_do_not_make_the_loss_non_finite() -> None:
    assert mechanisms(event(GRAD, "fc3", "nonfinite"), event(LOSS, "loss", "nonfinite")) == []
    assert mechanisms(event(ACT, "fc3", "nonfinite"), event(LOSS, "loss", "diverging")) == []
    assert mechanisms(event(ACT, "fc3", "dead"), event(LOSS, "loss", "nonfinite")) == []


@pytest.mark.parametrize("loss", ["diverging", "spiking"])
def test_a_huge_update_makes_the_loss_jump(loss: str) -> None:
    huge = event(UPDATE, "fc1.weight", "huge", ratio=0.6)
    (found,) = joined(huge, event(LOSS, "loss", loss))
    assert (found.mechanism, found.agreement) == ("overshoots", 0.6)


def test_a_huge_update_does_not_stall_the_loss() -> None:
    huge = event(UPDATE, "fc1.weight", "huge", ratio=5.0)
    assert mechanisms(huge, event(LOSS, "loss", "stalled")) == []
    assert mechanisms(huge, event(ACT, "fc1", "dead")) == []


# -- time and number -----------------------------------------------------------------------


def test_an_effect_follows_its_cause_soon() -> None:
    def apart(steps: int) -> int:
        first, second = (
            event(ACT, "fc3", "nonfinite", 50),
            event(LOSS, "loss", "nonfinite", 50 + steps),
        )
        return len(joined(first, second))

    assert apart(0) == apart(SPAN) == 1
    assert apart(-1) == apart(SPAN + 1) == 0


def test_an_event_is_not_coupled_with_itself() -> None:
    assert joined(event(ACT, "fc1", "nonfinite")) == []


def test_the_best_agreement_comes_first_and_the_list_is_bounded() -> None:
    events = [event(UPDATE, f"w{i}", "huge", ratio=0.5 + i / 200) for i in range(MOST + 20)]
    found = joined(*events, event(LOSS, "loss", "diverging"))
    assert len(found) == MOST
    assert [c.agreement for c in found] == sorted((c.agreement for c in found), reverse=True)


def test_too_many_events_are_not_paired() -> None:
    events = [event(ACT, f"m{i}", "nonfinite") for i in range(401)]
    assert joined(*events, event(LOSS, "loss", "nonfinite")) == []


def test_an_agreement_is_a_share() -> None:
    huge = event(UPDATE, "fc1.weight", "huge", ratio=1e9)
    assert joined(huge, event(LOSS, "loss", "diverging"))[0].agreement == 1.0


# -- the way back --------------------------------------------------------------------------


def sick() -> Diagnosis:
    """Dead units block a gradient, so a weight stands still: a chain of three events."""
    dead, grads, still = np.full(50, 0.05), np.full(50, 2e-3), np.full(50, 3e-3)
    dead[20:], grads[20:], still[20:] = 1.0, 0.0, 0.0
    draft = classifier().stays().of_optimizer("0", grad_carried=2.0)
    draft.of_module("act1", act_negative_units=dead).of_module("fc1", grad_rms=grads)
    return diagnose(draft.of_param("fc1.weight", update_ratio=still).build())


def test_a_symptom_is_traced_back_through_its_mechanisms() -> None:
    step = 20 * EVERY
    links = trace(sick(), f"update:fc1.weight:frozen:{step}")
    assert [x.event for x in links][-3:] == [
        f"activation:act1:dead:{step}",
        f"gradient:fc1:zero:{step}",
        f"update:fc1.weight:frozen:{step}",
    ]


def test_the_hypothesis_that_explains_it_comes_in_front() -> None:
    found = sick()
    stalled = next(e for e in found.events if e.after == "stalled")
    links = trace(found, stalled.id)
    best = next(h for h in found.hypotheses if any(x.event == stalled.id for x in h.chain))
    assert links[0] == Link(best.summary)
    assert links[-1].event == stalled.id
    assert all(x.event is None for x in links[:-1])


def test_a_hypothesis_that_does_not_explain_it_stays_out() -> None:
    seen = event(ACT, "fc1", "dead")
    other = CausalHypothesis("a", 0.9, summary="other", chain=(Link("x"), Link("y", "elsewhere")))
    right = CausalHypothesis("b", 0.5, summary="right", chain=(Link("z"), Link("y", seen.id)))
    found = Diagnosis(Facts(RunFact(id="r")), "suspect", (other, right), (seen,))
    assert [x.text for x in trace(found, seen.id)][:2] == ["right", "z"]


def test_the_symptoms_of_a_chain_come_in_the_order_of_their_steps() -> None:
    late = np.full(50, 3e-3)
    late[30:] = 2.0
    draft = classifier().diverges().change_optimizer("SGD", lr=5.0)
    draft.of_param("*.weight", update_ratio=0.9).of_module("act1", act_negative_units=late)
    best = diagnose(draft.build()).hypotheses[0]
    by_id = {e.id: e.step for e in diagnose(draft.build()).events}
    steps = [by_id[x.event] for x in best.chain if x.event]
    assert len(set(steps)) > 1
    assert steps == sorted(steps)


def test_an_event_that_no_hypothesis_explains_is_traced_all_the_same() -> None:
    odd = event(ACT, "fc1", "dead")
    found = Diagnosis(Facts(RunFact(id="r")), "healthy", events=(odd,))
    assert trace(found, odd.id) == [Link("fc1 becomes dead at step 10", odd.id)]


def test_an_unknown_event_has_no_way() -> None:
    assert trace(sick(), "nothing") == []
    assert trace(Diagnosis(Facts(RunFact(id="r")), "healthy"), "") == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.integers(0, 5))
def test_no_circle_of_couplings_can_hang_a_trace(pairs: list[tuple[int, int]], start: int) -> None:
    events = tuple(event(ACT, f"m{i}", "dead") for i in range(6))
    circle = tuple(Coupling(events[a].id, events[b].id, "m", 1.0, "t") for a, b in pairs)
    cause = CausalHypothesis("c", 0.9, summary="s", chain=(Link("x"), Link("y", events[0].id)))
    found = Diagnosis(Facts(RunFact(id="r")), "suspect", (cause,), events, circle)
    links = trace(found, events[start].id)
    met = [x.event for x in links if x.event]
    assert met[-1] == events[start].id
    assert len(set(met)) == len(met)


def test_a_coupling_with_an_event_that_is_gone_is_left_out() -> None:
    known = event(ACT, "fc1", "dead")
    gone = Coupling("gone", known.id, "m", 1.0, "t")
    found = Diagnosis(Facts(RunFact(id="r")), "healthy", events=(known,), couplings=(gone,))
    assert [x.event for x in trace(found, known.id)] == [known.id]
