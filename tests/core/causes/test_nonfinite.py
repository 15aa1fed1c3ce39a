"""Non-finite values that the user's own operations make."""

from __future__ import annotations

import numpy as np

from neuraldbg.core.detect import extract
from neuraldbg.core.engine import diagnose
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.offender import first_nonfinite
from neuraldbg.core.view import View

from ..records import EVERY, Draft, classifier
from .blame import accused, blamed, confidence, convict, texts

LOOKS = 50
LOOK = 25
STEP = LOOK * EVERY


def broken_by(module: str = "fc3") -> Draft:
    """A module makes NaN from finite input; the loss follows."""
    bad, rms = np.zeros(LOOKS), np.full(LOOKS, 0.9)
    bad[LOOK:], rms[LOOK:] = 5.0, np.nan
    draft = classifier().breaks(STEP)
    return draft.of_module(module, act_nonfinite=bad, act_rms=rms)


def hazard(step: int) -> SemanticEvent:
    """What the monitor notes when a logarithm meets a zero."""
    return SemanticEvent(
        id=f"hazard-log-{step}",
        kind=EventType.NONFINITE,
        where="loss:log",
        step=step,
        before="finite",
        after="hazard",
        metadata={"operation": "log", "trouble": "3 zero and 0 negative of 32 entries"},
    )


def test_the_first_module_that_makes_nan_from_finite_input_is_evidence() -> None:
    best = convict(broken_by(), "nonfinite_operation", where="fc3", step=STEP)
    assert f"fc3 gives a non-finite value from finite input at step {STEP}" in texts(best)


def test_what_made_it_comes_first_then_the_layers_near_the_loss_with_the_largest_output() -> None:
    draft = broken_by("fc1").of_module("fc2", act_absmax=1e4)
    assert blamed(draft).where == ("fc1", "fc2", "fc3")


def test_a_block_whose_own_arithmetic_makes_nan_is_named() -> None:
    draft = classifier().module("pool", "Pool", leaf=False, before="fc2").breaks(STEP)
    # The block runs to its end after the layer inside it, and before the next.
    nan = np.where(np.arange(50) * EVERY >= STEP, 4.0, 0.0)
    draft.of_module("pool", act_nonfinite=nan).of_module("fc3", act_nonfinite=nan, in_nonfinite=nan)
    best = convict(draft, "nonfinite_operation", where="pool", step=STEP)
    assert "its own arithmetic makes it" in texts(best)


def test_a_logarithm_of_zero_near_the_loss_is_evidence() -> None:
    found = diagnose(classifier().breaks(STEP).build(), [hazard(STEP)])
    best = found.hypotheses[0]
    assert best.cause == "nonfinite_operation"
    assert best.first_step == STEP
    assert best.summary.startswith("Log near the loss: 3 zero")
    assert "clamp" in best.repair.lower()


def test_a_hazard_without_consequence_is_no_fault() -> None:
    assert diagnose(classifier().build(), [hazard(STEP)]).verdict == "healthy"


def test_a_hazard_after_the_first_nan_is_a_consequence() -> None:
    late = diagnose(classifier().breaks(STEP).build(), [hazard(STEP + 20)])
    assert "nonfinite_operation" not in [h.cause for h in late.hypotheses]


def test_a_module_that_only_passes_nan_on_is_not_the_producer() -> None:
    bad = np.zeros(LOOKS)
    bad[LOOK:] = 5.0
    draft = broken_by("fc1").of_module("fc1", in_nonfinite=bad)
    assert "nonfinite_operation" not in accused(draft)


def test_nan_in_the_data_is_the_better_explanation() -> None:
    bad = np.zeros(LOOKS)
    bad[LOOK:] = 3.0
    draft = broken_by().of_batch("input", nonfinite=bad)
    assert blamed(draft).cause == "nonfinite_input"
    assert "nonfinite_operation" not in accused(draft)


def test_weights_that_explode_first_are_the_better_explanation() -> None:
    draft = broken_by().change_optimizer("SGD", lr=50.0).of_param("*.weight", update_ratio=5.0)
    assert blamed(draft).cause == "lr_too_high"


def test_weights_that_explode_first_speak_against_an_operation() -> None:
    sound = confidence(broken_by(), "nonfinite_operation")
    exploding = broken_by().of_param("*.weight", update_ratio=5.0)
    assert confidence(exploding, "nonfinite_operation") < sound


def test_a_finite_run_has_no_first_nonfinite_step() -> None:
    record = classifier().build()
    assert first_nonfinite(View(record, extract(record))) is None


def test_the_first_nonfinite_step_is_the_earliest_of_all_signs() -> None:
    grads = np.full(LOOKS, 2e-3)
    grads[10:] = np.inf
    record = classifier().breaks(STEP).of_module("fc1", grad_rms=grads).build()
    assert first_nonfinite(View(record, extract(record))) == 10 * EVERY
