"""Training and evaluation mode in the wrong place."""

from __future__ import annotations

from neuraldbg.core.facts import ModuleFact

from ..records import Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def normalised() -> Draft:
    """A healthy run of a model with batch normalisation and dropout in a block."""
    draft = classifier().module("body", "Body", leaf=False, before="fc1")
    draft.module("body.norm", "BatchNorm1d", before="act1")
    draft.param("body.norm.weight", (64,)).param("body.norm.bias", (64,))
    return draft.module("body.drop", "Dropout", before="fc2", p=0.2)


def evaluating() -> Draft:
    """All of it in eval mode during training steps."""
    return normalised().stays().change_module("*", training=False)


def evaluated(wrong: int, passes: int = 40) -> Draft:
    """A healthy run with evaluation passes, some of them in training mode."""
    notes = {"no_grad_forwards": passes, "no_grad_forwards_in_train_mode": wrong}
    return normalised().notes(**notes)


def test_training_in_eval_mode_is_found_with_its_modules() -> None:
    best = convict(evaluating(), "eval_mode_training", where="body")
    assert best.where == ("body", "body.norm", "body.drop")
    assert "2 of 2 normalisation and dropout modules" in texts(best)


def test_dropout_alone_in_eval_mode_weighs_less() -> None:
    draft = evaluating()
    draft.modules = [x for x in draft.modules if x.kind != "BatchNorm1d"]
    cause = "eval_mode_training"
    assert 0 < confidence(draft, cause) < confidence(evaluating(), cause)


def test_training_in_training_mode_is_sound() -> None:
    assert accused(normalised()) == []
    assert "eval_mode_training" not in accused(normalised().stays())


def test_a_model_without_modes_is_not_blamed_for_being_in_eval_mode() -> None:
    draft = classifier().stays().change_module("*", training=False)
    assert "eval_mode_training" not in accused(draft)


def test_dropout_of_nothing_has_no_mode() -> None:
    draft = classifier().stays().module("drop", "Dropout", p=0.0)
    assert "eval_mode_training" not in accused(draft.change_module("*", training=False))


def test_a_frozen_normalisation_in_eval_mode_is_fine_tuning() -> None:
    draft = evaluating().change_param("body.*", requires_grad=False)
    assert "eval_mode_training" not in accused(draft)


def test_dropout_inside_a_frozen_block_is_fine_tuning() -> None:
    draft = evaluating().change_param("body.*", requires_grad=False)
    draft.modules = [x for x in draft.modules if x.kind != "BatchNorm1d"]
    assert "eval_mode_training" not in accused(draft)


def test_a_minority_in_eval_mode_is_on_purpose() -> None:
    draft = normalised().stays()
    for i in range(2):
        draft.module(f"body.more{i}", "BatchNorm1d", before="fc2").param(
            f"body.more{i}.weight", (64,)
        )
    draft.change_module("body.norm", training=False)
    assert "eval_mode_training" not in accused(draft)


def test_evaluating_in_training_mode_is_found() -> None:
    best = convict(evaluated(40), "train_mode_inference", where="body.drop", step=None)
    assert "all 40 forward passes without gradient" in texts(best)


def test_batchnorm_makes_it_worse() -> None:
    draft = evaluated(40)
    draft.modules = [x for x in draft.modules if x.kind != "BatchNorm1d"]
    cause = "train_mode_inference"
    assert 0 < confidence(draft, cause) < confidence(evaluated(40), cause)


def test_evaluating_in_eval_mode_is_sound() -> None:
    assert accused(evaluated(0)) == []


def test_a_generator_may_draw_samples_in_training_mode() -> None:
    draft = evaluated(40)
    draft.modules += [ModuleFact("netG", "Generator"), ModuleFact("netD", "Discriminator")]
    assert accused(draft) == []


def test_some_passes_in_training_mode_are_something_else() -> None:
    assert accused(evaluated(39)) == []


def test_a_model_without_modes_may_be_evaluated_in_any() -> None:
    notes = {"no_grad_forwards": 40, "no_grad_forwards_in_train_mode": 40}
    assert accused(classifier().notes(**notes)) == []


def test_the_two_modes_are_told_apart() -> None:
    assert blamed(evaluating()).cause == "eval_mode_training"
    assert "eval_mode_training" not in accused(evaluated(40))


def test_a_model_whose_dropout_drops_nothing_may_be_evaluated_in_any_mode() -> None:
    notes = {"no_grad_forwards": 40, "no_grad_forwards_in_train_mode": 40}
    assert accused(classifier().module("drop", "Dropout", p=0.0).notes(**notes)) == []


def test_a_single_sample_in_evaluation_is_the_modes_fault_and_in_training_the_batchs() -> None:
    said = "ValueError: Expected more than 1 value per channel when training, got 1"
    assert blamed(evaluated(1, 1).notes(exception=said)).cause == "train_mode_inference"
    assert blamed(normalised().notes(exception=said)).cause == "batchnorm_small_batch"


def test_answers_that_are_drawn_several_times_want_dropout() -> None:
    draft = evaluated(40).notes(no_grad_forwards_of_the_same_input=38)
    assert "train_mode_inference" in accused(draft)  # its normalisation is wrong all the same
    draft.modules = [x for x in draft.modules if x.kind != "BatchNorm1d"]
    assert "train_mode_inference" not in accused(draft)
    assert "train_mode_inference" in accused(draft.notes(no_grad_forwards_of_the_same_input=3))
