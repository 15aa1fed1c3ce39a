"""Two faults at once: both are named among the first three."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuraldbg.testing.pairs import PAIRS, Pair
from neuraldbg.testing.trial import watch

QUICK = [PAIRS[n] for n in (0, 1, 5, 6, 7, 8)]


@pytest.mark.parametrize("pair", QUICK, ids=lambda pair: pair.name)
def test_both_are_named(pair: Pair, tmp_path: Path) -> None:
    trial = watch(pair.plan(), 0, tmp_path / "run.ndbg")
    assert trial.suffered
    assert trial.diagnosis is not None
    assert pair.named(trial.diagnosis) == 2, trial.diagnosis.hypotheses[:3]


def test_a_fault_that_does_not_apply_is_refused() -> None:
    pair = Pair("tumour_logits", ("unequal_columns", 1000), ("clipped_too_low", 1e-5))
    with pytest.raises(ValueError, match="clipped_too_low does not apply to tumour_logits"):
        pair.plan()
