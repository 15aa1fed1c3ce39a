"""Faults that torch names itself, in the exception that ends the script."""

from __future__ import annotations

import pytest

from .causes.blame import accused, convict
from .records import Draft, classifier

NO_PROBABILITY = "RuntimeError: all elements of input should be between 0 and 1"
NO_GRADIENT = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
ONE_VALUE = (
    "ValueError: Expected more than 1 value per channel when training, got input size "
    "torch.Size([1, 64])"
)


def crashed(text: str) -> Draft:
    """A run that ended with an exception."""
    return classifier().notes(exception=text)


def test_numbers_that_are_no_probabilities_lack_a_sigmoid() -> None:
    best = convict(crashed(NO_PROBABILITY), "output_activation_mismatch", where="fc3", step=200)
    assert "sigmoid" in best.repair
    assert NO_PROBABILITY in best.evidence[0].text


def test_backward_of_a_model_that_is_wholly_frozen() -> None:
    draft = crashed(NO_GRADIENT).change_param("*", requires_grad=False)
    convict(draft, "frozen_params", where="fc3", step=200)


def test_where_parameters_want_a_gradient_freezing_is_not_to_blame() -> None:
    assert "frozen_params" not in accused(crashed(NO_GRADIENT))


def test_a_last_batch_of_one_sample_under_batch_normalisation() -> None:
    draft = crashed(ONE_VALUE).module("norm", "BatchNorm1d", before="act1")
    best = convict(draft, "batchnorm_small_batch", where="norm", step=200)
    assert "drop_last" in best.repair


@pytest.mark.parametrize("text", ["KeyError: 'label'", "RuntimeError: out of memory"])
def test_other_exceptions_accuse_no_cause(text: str) -> None:
    assert accused(crashed(text)) == []
