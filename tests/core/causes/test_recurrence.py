"""Recurrence."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.engine import diagnose
from neuraldbg.core.facts import Kind

from ..records import Draft, classifier
from .blame import accused, blamed, confidence, convict, texts

BROKEN = 40  # the step at which the loss turns NaN


def recurrent(grad: float = 1e4, calls: int = 64, kind: str = "RNNCell") -> Draft:
    """A recurrent layer whose gradients grow over the time steps, until the loss is NaN."""
    draft = classifier().breaks(BROKEN)
    draft.layer("cell", 64, 64, kind, before="fc2").change_module("cell", calls=calls)
    return draft.of_param("cell.*", grad_norm=grad)


@pytest.mark.parametrize("kind", ["RNNCell", "MyCell"])
def test_huge_gradients_of_a_layer_applied_many_times_are_the_recurrence(kind: str) -> None:
    best = convict(recurrent(kind=kind), "exploding_recurrence", where="cell", step=BROKEN)
    assert "cell is applied 64 times in a step" in texts(best)
    assert "no gradient clipping was seen" in texts(best)


def test_a_fused_recurrent_layer_counts_though_it_is_called_once() -> None:
    convict(recurrent(calls=1, kind="LSTM"), "exploding_recurrence", where="cell", step=BROKEN)


def test_a_loss_that_diverges_counts_as_one_that_is_nan() -> None:
    draft = recurrent().diverges()
    first = next(e for e in diagnose(draft.build()).events if e.after == "diverging")
    convict(draft, "exploding_recurrence", where="cell", step=first.step)


def test_a_recurrent_net_that_learns_is_no_fault() -> None:
    assert accused(recurrent().falls(2.3, 0.1)) == []


def test_clipping_speaks_against_it() -> None:
    clipped = recurrent().of_optimizer("0", clip_limit=1.0)
    cause = "exploding_recurrence"
    assert confidence(clipped, cause) < confidence(recurrent(), cause)


def test_small_gradients_speak_against_it() -> None:
    cause = "exploding_recurrence"
    assert confidence(recurrent(grad=0.01), cause) < confidence(recurrent(grad=10.0), cause)


def test_a_feed_forward_net_has_no_recurrence() -> None:
    draft = classifier().diverges().of_param("*", grad_norm=1e4)
    assert "exploding_recurrence" not in accused(draft)


def test_a_gradient_that_was_not_read_is_not_called_zero() -> None:
    unread = recurrent().without("grad_norm")
    best = convict(unread, "exploding_recurrence", where="cell", step=BROKEN)
    assert "gradient norm of its weights" not in texts(best)
    assert "gradient norm of its weights" not in "".join(e.text for e in best.against)


def test_only_a_run_that_breaks_down_is_said_to_diverge() -> None:
    assert "the run diverges" in texts(blamed(recurrent()))
    stuck = diagnose(recurrent().stays().build()).hypotheses
    told = "".join(texts(h) for h in stuck if h.cause == "exploding_recurrence")
    assert "applied 64 times" in told
    assert "the run diverges" not in told


def test_calls_of_accumulated_batches_are_no_recurrence() -> None:
    draft = classifier().diverges().change_module("fc2", calls=8)
    assert "exploding_recurrence" in accused(draft)
    draft.put(Kind.RUN, "", m.R_BACKWARDS, np.full(draft.steps, 8.0))
    assert "exploding_recurrence" not in accused(draft)


def test_accumulated_micro_batches_are_no_time_steps() -> None:
    passes = np.ones(classifier().steps)
    passes[::17] = 17.0
    draft = recurrent(calls=17, kind="Linear").put(Kind.RUN, "", m.R_BACKWARDS, passes)
    assert "exploding_recurrence" not in accused(draft)
