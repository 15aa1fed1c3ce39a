"""The optimizer's settings: decay, momentum, clipping, epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ..records import Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def decaying(kind: str = "SGD", decay: float = 0.5, left: float = 0.01) -> Draft:
    """Weights that shrink to a share of their start under a strong decay."""
    draft = classifier().change_optimizer(kind, lr=0.05, weight_decay=decay).stays()
    return draft.of_param("*.weight", weight_norm=np.geomspace(5.0, 5.0 * left, 50), grad_norm=0.05)


def clipped(limit: float, norm: float = 2.0) -> Draft:
    """Gradients that are clipped on every step."""
    draft = classifier().stays().of_param("*.weight", update_ratio=1e-6)
    return draft.of_optimizer(
        "0", clip_norm=np.full(draft.steps, norm), clip_limit=np.full(draft.steps, limit)
    )


# -- weight decay --------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "decay"), [("SGD", 0.5), ("AdamW", 10.0), ("Adam", 0.5)])
def test_a_decay_that_shrinks_all_weights_is_excessive(kind: str, decay: float) -> None:
    best = convict(decaying(kind, decay), "excessive_weight_decay")
    assert f"weight_decay {decay:g}" in best.summary
    assert "shrank to 0.01" in texts(best)


def test_the_decay_term_is_compared_with_the_gradient_where_they_share_a_step() -> None:
    assert "of the gradient" in texts(blamed(decaying("SGD", 0.5)))
    assert "of the gradient" not in texts(blamed(decaying("AdamW", 10.0)))


def test_what_is_a_strong_decay_depends_on_the_optimizer() -> None:
    cause = "excessive_weight_decay"
    by_kind = [confidence(decaying(kind, 0.2), cause) for kind in ("AdamW", "SGD", "Adam")]
    assert by_kind == sorted(by_kind)
    assert by_kind[0] < by_kind[1]


def test_weights_that_shrink_more_are_more_evidence() -> None:
    cause = "excessive_weight_decay"
    kept, half, gone = (confidence(decaying(left=x), cause) for x in (1.0, 0.6, 0.01))
    assert kept < half < gone


def test_the_same_decay_is_no_fault_where_the_run_learns() -> None:
    assert accused(decaying("SGD", 0.01, left=0.95).falls(2.3, 0.1)) == []


def test_a_usual_decay_is_not_blamed_for_a_stuck_run() -> None:
    assert "excessive_weight_decay" not in accused(decaying("SGD", 1e-4, left=1.0))


def test_without_decay_or_readings_there_is_nothing_to_blame() -> None:
    assert "excessive_weight_decay" not in accused(decaying("SGD", 0.0))
    assert "excessive_weight_decay" not in accused(decaying().without("weight_norm"))
    assert "excessive_weight_decay" not in accused(decaying().without("grad_norm"))


def balanced(kind: str, decay: float) -> Draft:
    """Weights that keep their size under a decay as large as the gradient."""
    draft = classifier().change_optimizer(kind, lr=0.01, weight_decay=decay).stays()
    return draft.of_param("*.weight", weight_norm=5.0, grad_norm=5.0 * decay / 0.8)


def test_a_decay_as_large_as_the_gradient_is_excessive_where_the_step_is_divided_by_both() -> None:
    best = convict(balanced("Adam", 5e-3), "excessive_weight_decay")
    assert "the decay term is 0.8 of the gradient" in texts(best)
    assert "excessive_weight_decay" not in accused(balanced("AdamW", 5e-3))
    assert "excessive_weight_decay" not in accused(balanced("SGD", 5e-3))


def test_a_usual_decay_is_in_balance_with_a_gradient_that_has_run_out() -> None:
    assert "excessive_weight_decay" not in accused(balanced("Adam", 1e-4))


# -- momentum ------------------------------------------------------------------------------


def test_a_momentum_that_averages_over_hundreds_of_steps_is_excessive() -> None:
    draft = classifier().change_optimizer("SGD", lr=0.05, momentum=0.999).stays()
    best = convict(draft, "excessive_momentum")
    assert "over 1000 steps" in texts(best)


def test_beta1_of_adam_is_a_momentum() -> None:
    settings = {"betas.0": 0.9995, "betas.1": 0.999}
    draft = classifier().change_optimizer("Adam", lr=1e-3, **settings).stays()
    convict(draft, "excessive_momentum")


def test_a_momentum_of_one_is_no_division_by_zero() -> None:
    draft = classifier().change_optimizer("SGD", lr=0.05, momentum=1.0).stays()
    convict(draft, "excessive_momentum")


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.95])
def test_a_usual_momentum_is_not_blamed(momentum: float) -> None:
    draft = classifier().change_optimizer("SGD", lr=0.05, momentum=momentum).stays()
    assert "excessive_momentum" not in accused(draft)


def test_a_high_momentum_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(classifier().change_optimizer("SGD", lr=0.05, momentum=0.999)) == []


# -- clipping ------------------------------------------------------------------------------


def test_clipping_to_a_tiny_share_of_the_gradient_is_excessive() -> None:
    best = convict(clipped(1e-4), "excessive_clipping")
    assert "2e+04 times the limit 0.0001" in texts(best)


def test_the_onset_is_the_first_clipped_step() -> None:
    draft = clipped(1e-4)
    norm = np.full(draft.steps, np.nan)
    norm[30:] = 2.0
    convict(draft.of_optimizer("0", clip_norm=norm), "excessive_clipping", step=30)


def test_an_optimizer_that_rescales_gradients_speaks_against_it() -> None:
    best = blamed(clipped(1e-4).change_optimizer("Adam", lr=1e-3))
    assert "rescales gradients" in "".join(e.text for e in best.against)
    assert best.confidence < blamed(clipped(1e-4)).confidence


@pytest.mark.parametrize("limit", [5.0, 0.5])
def test_clipping_near_the_usual_norm_is_not_blamed(limit: float) -> None:
    assert "excessive_clipping" not in accused(clipped(limit))


def test_clipping_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(clipped(1e-3).falls(2.3, 0.1)) == []


def test_clipping_that_roots_untrained_weights_is_excessive_where_the_loss_falls() -> None:
    draft = clipped(0.01).falls(2.3, 0.3).of_param("*", update_ratio=5e-5)
    assert accused(draft) == []
    for p in list(draft.params):
        draft.change_param(p.name, init_absmax=1 / math.sqrt(p.fan_in or 1))
    convict(draft, "excessive_clipping")


def test_clipping_is_judged_by_several_norms_against_a_limit() -> None:
    few = np.full(200, np.nan)
    few[:2] = 2.0
    assert "excessive_clipping" not in accused(clipped(1e-4).of_optimizer("0", clip_norm=few))
    assert "excessive_clipping" not in accused(clipped(1e-4).without("clip_limit"))
    assert "excessive_clipping" not in accused(clipped(0.0))


def test_clipping_of_scaled_gradients_is_another_fault() -> None:
    draft = clipped(1e-4).notes(clips_of_scaled_gradients=200)
    draft.of_optimizer("0", loss_scale=np.full(draft.steps, 65536.0))
    assert blamed(draft).cause == "clip_before_unscale"
    assert "excessive_clipping" not in accused(draft)


# -- settings ------------------------------------------------------------------------------


def test_an_eps_far_above_the_gradients_swallows_them() -> None:
    draft = classifier().change_optimizer("Adam", lr=1e-3, eps=1.0).stays()
    best = convict(draft.of_param("*.weight", update_ratio=1e-5), "optimizer_misconfigured")
    assert "eps 1 is" in texts(best)


@pytest.mark.parametrize("beta2", [0.1, 0.9999999])
def test_a_second_beta_far_from_sound_is_evidence(beta2: float) -> None:
    settings = {"betas.0": 0.9, "betas.1": beta2, "eps": 1e-8}
    draft = classifier().change_optimizer("Adam", lr=1e-3, **settings).stays()
    assert f"beta2 {beta2:g}" in texts(convict(draft, "optimizer_misconfigured"))


@pytest.mark.parametrize("eps", [1e-8, 1e-4])
def test_a_usual_eps_is_not_blamed(eps: float) -> None:
    settings = {"betas.0": 0.9, "betas.1": 0.999, "eps": eps}
    draft = classifier().change_optimizer("Adam", lr=1e-3, **settings).stays()
    assert "optimizer_misconfigured" not in accused(draft)


def test_a_weight_without_entries_has_no_scale() -> None:
    draft = classifier().change_optimizer("Adam", lr=1e-3, eps=1.0).stays()
    draft.of_param("*.weight", update_ratio=1e-5).change_param("fc2.weight", shape=(0, 64))
    convict(draft, "optimizer_misconfigured")


def test_a_large_eps_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(classifier().change_optimizer("Adam", lr=1e-3, eps=1.0)) == []


def test_what_clipping_leaves_and_hardly_moves_the_weights_is_evidence() -> None:
    draft = clipped(0.01).change_optimizer("SGD", lr=0.02).of_param("*.weight", update_ratio=1e-3)
    before = confidence(draft, "excessive_clipping")
    draft.of_param("*.weight", update_ratio=3e-5)
    assert confidence(draft, "excessive_clipping") > before


# -- made anew -------------------------------------------------------------------------------


def made_anew(kind: str, times: int, **settings: float) -> Draft:
    """A run that is stuck, with so many optimizers for the same parameters."""
    draft = classifier().stays().change_optimizer(kind, lr=1e-3, **settings)
    return draft.notes(optimizer_steps=200, optimizers_made_anew=times)


def test_an_optimizer_of_every_step_never_builds_up_its_moments() -> None:
    best = convict(made_anew("Adam", 199), "optimizer_misconfigured")
    assert "199 of 200 steps were the first of an optimizer" in texts(best)
    assert "before the loop" in best.repair
    assert "optimizer_misconfigured" in accused(made_anew("SGD", 199, momentum=0.9))


def test_what_remembers_nothing_has_nothing_to_forget() -> None:
    assert "optimizer_misconfigured" not in accused(made_anew("SGD", 199))


def test_an_optimizer_of_every_epoch_is_no_fault() -> None:
    assert "optimizer_misconfigured" not in accused(made_anew("Adam", 10))
