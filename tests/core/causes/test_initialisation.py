"""The initial weights: scale and symmetry."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core.causes.initialisation import gain
from neuraldbg.core.facts import Kind, ParamFact, TensorFact

from ..records import CLASSES, Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def too_large(factor: float = 40.0) -> Draft:
    """Weights far too large: signals grow with depth, the first loss is absurd."""
    draft = classifier().stays(60.0)
    for i, layer in enumerate(("fc1", "fc2", "fc3")):
        draft.of_module(layer, act_rms=10.0 * 20**i)
    for p in list(draft.params):
        draft.change_param(p.name, init_rms=p.init_rms * factor)
    return draft


def too_small() -> Draft:
    """Weights so small that the output does not depend on the input."""
    draft = classifier().stays()
    draft.change_param("*.weight", init_rms=1e-6)
    draft.of_module("fc?", act_rms=1e-5, act_constant_units=0.0)
    return draft.of_module("fc[12]", grad_rms=1e-9)


def equal_rows(spread: object = 0.0) -> Draft:
    """A layer whose units start equal; the rows are followed."""
    draft = classifier().stays().change_param("fc2.weight", row_spread=0.0)
    return draft.of_param("fc2.weight", row_spread=spread)  # type: ignore[arg-type]


# -- too large -----------------------------------------------------------------------------


def test_weights_far_above_the_sound_scale_with_an_absurd_first_loss_are_too_large() -> None:
    best = convict(too_large(), "init_too_large", where="fc1")
    assert best.where[1].startswith("fc1.weight")
    assert "times that of a constant guess" in texts(best)
    assert "the signal grows" in texts(best)


def test_a_first_loss_that_is_nan_is_evidence() -> None:
    best = convict(too_large().breaks(0), "init_too_large", where="fc1")
    assert "the very first loss is not finite" in texts(best)


def test_a_sound_first_loss_speaks_against_large_weights() -> None:
    sound = too_large().stays()
    assert confidence(sound, "init_too_large") < confidence(too_large(), "init_too_large")


def test_large_weights_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(too_large(8.0).falls(2.3, 0.1)) == []


@pytest.mark.parametrize("factor", [1.0, 1 / 0.58, 2.45])
def test_the_usual_initialisations_are_not_blamed_for_a_high_first_loss(factor: float) -> None:
    assert "init_too_large" not in accused(too_large(factor))


def test_frozen_weights_are_not_judged() -> None:
    draft = too_large().change_param("*", requires_grad=False)
    assert "init_too_large" not in accused(draft)


def test_large_input_is_the_better_explanation_where_the_weights_are_usual() -> None:
    assert blamed(too_large().of_batch("input", feature_rms=1.2)).cause == "init_too_large"
    raw = classifier().stays(60.0).of_batch("input", feature_rms=3e3, feature_spread=100.0)
    raw.of_module("fc1", in_absmax=9e3)
    assert blamed(raw).cause == "unnormalized_input"


def embedding(first_loss: float = math.log(CLASSES)) -> Draft:
    """An embedding of N(0, 1), as PyTorch initialises it: a large scale for its width."""
    draft = classifier().stays(first_loss)
    draft.module("emb", "Embedding", before="fc1", num_embeddings=5000, embedding_dim=64)
    return draft.param("emb.weight", (5000, 64), rms=1.0, fan_in=64)


def test_an_embedding_that_is_only_looked_up_may_have_any_scale() -> None:
    assert "init_too_large" not in accused(embedding())


def tied(first_loss: float) -> Draft:
    """An embedding whose rows also make the logits: there is one for each."""
    draft = embedding(first_loss)
    return draft.change_loss(prediction=TensorFact((64, 5000), "float32", -90.0, 90.0, 0.0, 30.0))


def test_an_embedding_that_makes_the_logits_too_may_not() -> None:
    convict(tied(60.0), "init_too_large", where="emb")


def test_a_looked_up_embedding_is_not_blamed_for_a_high_first_loss() -> None:
    assert "init_too_large" not in accused(embedding(60.0))


def test_an_embedding_is_only_looked_up_where_another_layer_makes_the_logits() -> None:
    draft = tied(60.0).layer("out", 64, 5000)
    assert "init_too_large" not in accused(draft)


def test_an_embedding_is_not_blamed_where_the_output_layer_is_too_large_itself() -> None:
    draft = embedding(60.0).change_param("fc3.weight", init_rms=5.0)
    convict(draft, "init_too_large", where="fc3")


# -- too small -----------------------------------------------------------------------------


def test_weights_far_below_the_sound_scale_are_too_small() -> None:
    best = convict(too_small(), "init_too_small", where="fc1")
    assert best.where[1] == "fc1.weight"
    assert "3 of 3 weights" in texts(best)


def test_small_weights_with_which_the_run_learns_are_no_fault() -> None:
    assert accused(too_small().falls(2.3, 0.1).of_module("fc?", grad_rms=2e-3)) == []


def test_one_small_weight_of_many_is_not_blamed() -> None:
    draft = too_small()
    for i in range(4):
        draft.layer(f"more{i}", 64, 64, before="fc2")
    draft.change_param("fc[23].weight", init_rms=0.07)
    assert "init_too_small" not in accused(draft)


def test_weights_of_zero_are_symmetric_rather_than_small() -> None:
    draft = too_small().change_param("*.weight", init_rms=0.0)
    assert "init_too_small" not in accused(draft)


# -- symmetric -----------------------------------------------------------------------------


def test_rows_that_start_and_stay_equal_are_symmetric() -> None:
    best = convict(equal_rows(), "init_symmetric", where="fc2")
    assert "all rows of fc2.weight are equal" in texts(best)
    assert "its weights moved, all rows alike" in texts(best)


def test_rows_that_training_pulls_apart_are_no_fault() -> None:
    assert "init_symmetric" not in accused(equal_rows(np.linspace(0.0, 0.5, 50)))


def test_two_looks_are_too_few_to_see_symmetry_last() -> None:
    few = np.full(50, np.nan)
    few[:2] = 0.0
    assert "init_symmetric" not in accused(equal_rows(few))


def test_a_layer_with_one_unit_has_no_symmetry() -> None:
    draft = equal_rows().change_param("fc2.weight", shape=(1, 64))
    assert "init_symmetric" not in accused(draft)


def test_equal_rows_that_never_moved_are_still_equal() -> None:
    draft = equal_rows().of_param("fc2.weight", update_ratio=0.0)
    assert "its weights moved" not in texts(blamed(draft))


def test_most_weights_with_equal_rows_at_the_start_are_a_fault_and_one_is_not() -> None:
    draft = classifier().stays().change_param("fc[12].weight", row_spread=0.0)
    assert convict(draft, "init_symmetric", where="fc1").evidence
    assert "init_symmetric" not in accused(
        classifier().stays().change_param("fc3.weight", row_spread=0.0)
    )


def test_layers_of_zeros_that_feed_no_other_such_are_sound() -> None:
    """The ends of coupling nets: all that leads to them starts at random."""
    zero = classifier().stays().change_param("fc[23].weight", row_spread=0.0, init_rms=0.0)
    assert convict(zero, "init_symmetric", where="fc2").evidence  # 64 units of one feed fc3
    ends = zero.change_param("fc2.weight", shape=(32, 64))
    assert "init_symmetric" not in accused(ends)


def test_the_rows_of_a_table_are_no_units() -> None:
    draft = classifier().stays().change_param("fc[12].weight", row_spread=0.0)
    for i, module in enumerate(draft.modules):
        if module.name in ("fc1", "fc2"):
            draft.modules[i] = replace(module, kind="Embedding")
    assert "init_symmetric" not in accused(draft)


def test_a_matrix_for_each_capsule_is_judged_by_its_own_sides() -> None:
    """48 x 10 matrices of 8 x 8: what enters a unit is 8 wide, and not 640."""

    def capsules(rms: float) -> Draft:
        draft = classifier().module("caps", "Capsules", before="fc3").stays()
        weight = ParamFact(
            "caps.weight", (48, 10, 8, 8), optimizer=0, reached=True, init_rms=rms, fan_in=640
        )
        draft.params.append(weight)
        return draft

    best = convict(capsules(0.01), "init_too_small", where="caps")
    assert "caps.weight: 0.028" in texts(best)
    assert "init_too_small" not in accused(capsules(0.35))


# -- gain ----------------------------------------------------------------------------------


def test_the_gain_of_a_weight_is_one_where_it_preserves_variance() -> None:
    assert gain(ParamFact("w", (8, 100), init_rms=0.1, fan_in=100)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "param",
    [
        ParamFact("w", (8, 100), init_rms=0.1),
        ParamFact("w", (8, 100), fan_in=100),
        ParamFact("w", (8,), init_rms=0.1, fan_in=100),
    ],
)
def test_the_gain_is_unknown_without_its_numbers(param: ParamFact) -> None:
    assert math.isnan(gain(param))


def test_learnt_tokens_are_no_weights() -> None:
    draft = too_large().change_param("*.weight", init_rms=0.05)
    tokens = ParamFact("latents", (1, 4, 64), optimizer=0, reached=True, init_rms=1.0, fan_in=256)
    draft.params.append(tokens)
    assert "init_too_large" not in accused(draft)


def multiplied(spread: float) -> Draft:
    """Lookups of a usual scale, and logits that vary by so much."""
    return embedding(14.0).put(Kind.LOSS, "prediction", "prediction_std", spread)


def test_lookups_that_are_multiplied_make_the_logits_too() -> None:
    best = convict(multiplied(16.0), "init_too_large", where="emb")
    assert "times that of a constant guess" in texts(best)


def test_logits_that_the_layers_made_are_no_products_of_lookups() -> None:
    assert "init_too_large" not in accused(multiplied(2.0))
