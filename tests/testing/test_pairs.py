"""Two faults at once: both are named among the first three."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuraldbg.testing.faults import all_faults
from neuraldbg.testing.programs import all_programs
from neuraldbg.testing.trial import watch

PAIRS = [
    ("digits_mlp", ("softmax_before_cross_entropy", "plain"), ("layer_in_a_list", 0.0)),
    ("digits_mlp", ("one_large_layer", 300), ("never_zeroes", "plain")),
    ("tumour_logits", ("sigmoid_before_logit_loss", "plain"), ("decay_too_strong", 1.0)),
    ("tumour_logits", ("unequal_columns", 1000), ("decays_every_step", 0.7)),
    ("diabetes_regression", ("flat_targets", "plain"), ("unequal_columns", 1000)),
    ("friedman_huber", ("large_targets", 1000), ("frozen", 0.7)),
]


@pytest.mark.parametrize(("program", "first", "second"), PAIRS)
def test_both_are_named(
    program: str,
    first: tuple[str, float | str],
    second: tuple[str, float | str],
    tmp_path: Path,
) -> None:
    plan, wanted = all_programs()[program], []
    for name, strength in (first, second):
        fault = all_faults()[name]
        changed = fault.into(plan, strength)
        assert changed is not None
        plan = changed
        wanted.append(fault)
    trial = watch(plan, 0, tmp_path / "run.ndbg")
    assert trial.suffered
    assert trial.diagnosis is not None
    said = [h.cause for h in trial.diagnosis.hypotheses[:3]]
    assert all(any(f.accepts(c) for c in said) for f in wanted), said
