"""The learning rate: too high, too low, mistimed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuraldbg.core.engine import diagnose
from neuraldbg.core.facts import Kind
from neuraldbg.core.infer import REPORTED

from ..records import EVERY, Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def too_high() -> Draft:
    """Updates as large as the weights, at a rate far beyond what is usual."""
    draft = classifier().change_optimizer("SGD", lr=5.0)
    return draft.of_param("*.weight", update_ratio=0.8).of_param("fc2.weight", update_ratio=1.4)


def too_low() -> Draft:
    """Updates that are lost in the weights, with healthy gradients."""
    draft = classifier().change_optimizer("SGD", lr=1e-6)
    return draft.of_param("*.weight", update_ratio=1e-7).stays()


def collapsing(gone: int = 60) -> Draft:
    """A rate that is sound at first and practically zero from a step on."""
    draft = classifier()
    lr = np.full(draft.steps, 0.05)
    lr[gone:] = 1e-6
    return draft.of_optimizer("0.0", lr=lr)


# -- too high ------------------------------------------------------------------------------


def test_a_rate_that_makes_the_loss_diverge_is_too_high() -> None:
    best = convict(too_high().diverges(), "lr_too_high", where="fc2.weight")
    assert "from 5 to about 0.5" in best.repair
    assert "the loss rises" in texts(best)
    assert "above the usual range of SGD" in texts(best)


def test_a_rate_that_makes_the_loss_nan_after_a_few_updates_is_too_high() -> None:
    best = convict(too_high().breaks(3), "lr_too_high", where="fc2.weight")
    assert "not after a few updates" in texts(best)


def test_a_loss_that_jumps_and_stays_up_is_evidence() -> None:
    draft = too_high().stays()
    loss = np.array([2.3, 2.3, *np.full(draft.steps - 2, 4.0)])
    best = convict(draft.loses(loss), "lr_too_high", where="fc2.weight")
    assert "jumped from 2.3 to 4 at step 2" in texts(best)


def test_units_that_die_after_the_start_are_evidence() -> None:
    dying = np.full(50, 0.05)
    dying[10:] = 1.0
    draft = too_high().stays().of_module("act1", act_negative_units=dying)
    best = convict(draft, "lr_too_high", where="fc2.weight")
    assert f"act1 was healthy and died at step {10 * EVERY}" in texts(best)


def test_units_that_are_dead_from_the_start_are_none() -> None:
    draft = too_high().stays().of_module("act1", act_negative_units=1.0)
    assert "and died at step" not in texts(blamed(draft))


def test_a_high_rate_at_which_the_loss_falls_is_no_fault() -> None:
    assert accused(too_high()) == []


def test_a_rate_near_the_end_of_the_usual_range_speaks_neither_for_nor_against() -> None:
    draft = too_high().diverges().change_optimizer("SGD", lr=0.4)
    best = convict(draft, "lr_too_high", where="fc2.weight")
    assert "usual range" not in texts(best)
    assert not any("usual for SGD" in e.text for e in best.against)


def test_a_usual_rate_with_usual_updates_is_not_blamed_for_a_stuck_run() -> None:
    assert "lr_too_high" not in accused(classifier().stays())


def test_one_layer_alone_with_large_updates_speaks_for_a_high_rate_only_weakly() -> None:
    draft = classifier().change_optimizer("SGD", lr=5.0).of_param("fc2.weight", update_ratio=1.4)
    best = convict(draft.diverges(), "lr_too_high", where="fc2.weight")
    assert best.confidence < confidence(too_high().diverges(), "lr_too_high")


def test_without_update_readings_no_rate_is_judged() -> None:
    draft = too_high().diverges().without("update_ratio")
    (guess,) = diagnose(draft.build()).hypotheses
    assert guess.confidence == REPORTED
    assert "was not seen" in guess.summary


def test_gradients_that_are_left_over_are_a_better_explanation() -> None:
    draft = too_high().diverges()
    assert blamed(draft).cause == "lr_too_high"
    assert blamed(draft.of_optimizer("0", grad_carried=3.0)).cause == "missing_zero_grad"


def test_a_first_loss_far_too_high_points_at_the_initial_weights_instead() -> None:
    draft = classifier().of_param("*.weight", update_ratio=0.2).stays(40.0)
    draft.change_param("*.weight", init_rms=3.0)
    assert blamed(draft).cause == "init_too_large"


# -- too low -------------------------------------------------------------------------------


def test_a_rate_at_which_nothing_moves_is_too_low() -> None:
    best = convict(too_low(), "lr_too_low")
    assert "from 1e-06 to about 1e-05" in best.repair
    assert "below the usual range" in texts(best)


def test_a_low_rate_at_which_the_loss_falls_is_no_fault() -> None:
    assert accused(too_low().falls(2.3, 0.1)) == []


def test_updates_of_a_usual_size_rule_out_a_low_rate() -> None:
    assert "lr_too_low" not in accused(too_low().of_param("*.weight", update_ratio=2e-3))


def test_a_usual_rate_with_tiny_updates_is_hardly_to_blame() -> None:
    usual = too_low().change_optimizer("SGD", lr=0.05)
    assert confidence(usual, "lr_too_low") < confidence(too_low(), "lr_too_low")


def test_what_is_usual_depends_on_the_optimizer() -> None:
    plain = too_low().change_optimizer("SGD", lr=1e-4)
    adaptive = too_low().change_optimizer("AdamW", lr=1e-4)
    assert confidence(adaptive, "lr_too_low") < confidence(plain, "lr_too_low")


def test_a_schedule_that_kills_the_rate_early_is_found_with_its_step() -> None:
    best = convict(collapsing(60).stays(), "lr_schedule", step=60)
    assert "70% of the run had no rate left" in texts(best)


def test_a_rate_that_decays_to_zero_at_the_very_end_is_no_fault() -> None:
    assert accused(collapsing(190)) == []
    assert "lr_schedule" not in accused(collapsing(190).stays())


def test_a_schedule_of_a_few_steps_is_not_judged() -> None:
    draft = classifier(steps=9).stays()
    lr = np.array([0.05, 0.05, *np.full(7, 1e-9)])
    assert "lr_schedule" not in accused(draft.of_optimizer("0.0", lr=lr))


def test_a_warm_up_is_no_fault() -> None:
    draft = classifier()
    lr = np.concatenate([np.geomspace(1e-6, 0.05, 60), np.full(draft.steps - 60, 0.05)])
    assert accused(draft.of_optimizer("0.0", lr=lr)) == []


def test_a_rate_that_grows_until_the_loss_diverges_is_a_schedule_fault() -> None:
    draft = classifier()
    lr = np.geomspace(0.01, 1e3, draft.steps)
    best = convict(draft.of_optimizer("0.0", lr=lr).diverges(), "lr_schedule", step=None)
    assert "and the loss diverged" in texts(best)


def test_what_the_rate_does_after_the_loss_broke_is_no_evidence() -> None:
    lr = np.geomspace(1e-3, 0.1, 20)
    draft = classifier().breaks(2)
    draft.of_optimizer("0.0", lr=np.concatenate([lr, np.full(draft.steps - 20, 0.1)]))
    assert "lr_schedule" not in accused(draft)
    assert "lr_schedule" in accused(draft.falls(2.3, 0.1).breaks(40))


def rooted(init: float = 1.0) -> Draft:
    """A rate at which no weight can leave its start, with a loss that begins well below chance.

    Args:
        init: Largest entry of each weight at the start, over that of a fresh layer.
    """
    draft = classifier().change_optimizer("Adam", lr=1e-5).falls(0.3, 0.2)
    draft.of_param("*", update_ratio=2e-4)
    for p in list(draft.params):
        draft.change_param(p.name, init_absmax=init / math.sqrt(p.fan_in or 1))
    return draft


def test_untrained_weights_that_cannot_move_tell_a_low_rate_where_the_loss_falls() -> None:
    best = convict(rooted(), "lr_too_low")
    assert "move a weight by 0.04 of itself at most" in texts(best)


def test_trained_weights_may_stay_where_they_are() -> None:
    assert accused(rooted(init=3.0)) == []


def test_a_group_with_a_rate_of_its_own_may_stay_where_it_is() -> None:
    draft = rooted()
    assert accused(draft.of_optimizer("0.1", lr=np.full(draft.steps, 0.01))) == []


def test_a_scheduler_stepped_too_often_is_evidence() -> None:
    draft = collapsing(60).stays()
    often = draft.of_optimizer("0", scheduler_steps=np.arange(draft.steps) * 4.0)
    assert "the scheduler took 796 steps in 200 optimizer steps" in texts(blamed(often))


def test_a_scheduler_stepped_as_often_as_the_optimizer_is_none() -> None:
    draft = collapsing(60).stays()
    in_step = draft.of_optimizer("0", scheduler_steps=np.arange(draft.steps) + 1.0)
    assert "the scheduler took" not in texts(blamed(in_step))


def test_a_rate_low_from_the_start_is_no_schedule_fault_and_a_collapsing_one_is_not_too_low() -> (
    None
):
    assert "lr_schedule" not in accused(too_low())
    assert blamed(collapsing(60).stays()).cause == "lr_schedule"


# -- pace ------------------------------------------------------------------------------------


def test_a_loss_that_falls_at_an_even_pace_tells_a_rate_that_is_too_low() -> None:
    draft = classifier().change_optimizer("SGD", lr=5e-4).of_param("*.weight", update_ratio=5e-4)
    even = np.linspace(2.3, 2.1, draft.steps) + np.random.default_rng(0).normal(
        0, 1e-3, draft.steps
    )
    best = convict(draft.loses(even), "lr_too_low")
    assert "even pace" in texts(best)
    settled = 2.1 + 0.2 * np.exp(-np.arange(draft.steps) / 10)
    assert "lr_too_low" not in accused(draft.loses(settled))


def test_a_loss_at_rest_speaks_against_a_rate_that_is_too_high() -> None:
    rate = classifier().change_optimizer("Adam", lr=0.03).of_param("*.weight", update_ratio=0.2)
    restless = confidence(rate.stays(2.2), "lr_too_high")
    assert restless > confidence(rate.loses(np.full(rate.steps, 2.2)), "lr_too_high")


@pytest.mark.parametrize(("kind", "lr"), [("Adagrad", 0.25), ("Adadelta", 1.0), ("Rprop", 0.01)])
def test_each_kind_of_optimizer_has_rates_of_its_own(kind: str, lr: float) -> None:
    draft = classifier().change_optimizer(kind, lr=lr).of_param("*.weight", update_ratio=0.33)
    assert "lr_too_high" not in accused(draft.falls(0.693, 0.265))


def test_a_rate_of_zero_moves_nothing() -> None:
    draft = classifier().stays().of_optimizer("0.0", lr=np.zeros(200))
    draft.of_param("*", update_ratio=0.0, update_norm=0.0, still=1.0)
    assert "the learning rate is 0 at all 200 steps" in texts(convict(draft, "lr_too_low"))


@pytest.mark.parametrize(
    ("ratio", "cause", "where"), [(1e-7, "lr_too_low", None), (0.9, "lr_too_high", "fc1.weight")]
)
def test_updates_by_hand_are_judged_by_their_size(
    ratio: float, cause: str, where: str | None
) -> None:
    draft = classifier().stays().change_param("*", optimizer=None, group=None)
    draft.optimizers, draft.channels = (
        [],
        {c: s for c, s in draft.channels.items() if c.kind is not Kind.OPTIMIZER},
    )
    best = convict(draft.of_param("*", update_ratio=ratio), cause, where=where)
    assert "takes by hand" in best.summary
    assert "nan" not in best.summary + best.repair


def test_tiny_updates_at_a_usual_rate_are_small_gradients_doing() -> None:
    """A loss that never falls at all has no pace, and acquits the rate no less."""
    draft = classifier().stays().of_param("*.weight", update_ratio=3e-7)
    usual = confidence(draft.change_optimizer("SGD", lr=0.2), "lr_too_low")
    low = confidence(draft.change_optimizer("SGD", lr=1e-6), "lr_too_low")
    assert usual < low
    against = blamed(draft.change_optimizer("SGD", lr=0.2)).against
    assert "itself is usual, so the gradients must be small" in "".join(e.text for e in against)


# -- a warm-up that never ends ---------------------------------------------------------------


def warming(reached: float) -> Draft:
    """A rate that rises all the time, to a share of the optimizer's own."""
    draft = classifier().change_optimizer("AdamW", lr=1e-6, initial_lr=1e-3)
    lr = np.linspace(1e-6, reached * 1e-3, draft.steps)
    return draft.of_optimizer("0.0", lr=lr).falls(2.3, 1.2)


def test_a_warm_up_that_the_run_does_not_outlast_is_a_schedule_fault() -> None:
    best = convict(warming(0.05), "lr_schedule")
    assert "it had reached 5e-05 of the 0.001" in texts(best)


def test_a_warm_up_that_is_nearly_done_is_none() -> None:
    assert "lr_schedule" not in accused(warming(0.5))


def test_what_all_updates_together_can_reach_is_evidence() -> None:
    near = too_low().of_param("*.weight", update_ratio=2e-5)
    assert "together move a weight by" in texts(blamed(near))
    far = too_low().of_param("*.weight", update_ratio=2e-4)
    assert "together" not in texts(blamed(far))
