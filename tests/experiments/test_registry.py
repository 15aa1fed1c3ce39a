"""Every declaration has its action, every action its declaration, and no torch in between."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neuraldbg.core.causes import all_causes
from neuraldbg.experiments.interventions import Intervention, all_interventions, interventions_for
from neuraldbg.torch.interventions import ACTIONS, Context, make

DECLARED = sorted(all_interventions().values(), key=lambda i: i.name)

# What cannot be changed from outside: the experiment needs other processes.
NO_EXPERIMENT = {"rank_divergence"}


def test_every_declaration_has_an_action_and_the_reverse() -> None:
    for declared in DECLARED:
        assert make(declared.name, Context()).applied == 0
    assert set(ACTIONS) == {i.name for i in DECLARED}


def test_every_cause_with_an_experiment_can_be_tested() -> None:
    wanted = {c.id for c in all_causes().values() if c.experiment} - NO_EXPERIMENT
    assert {c for c in wanted if not interventions_for(c)} == set()


@pytest.mark.parametrize("declared", DECLARED, ids=lambda i: i.name)
def test_a_declaration_says_what_one_must_know(declared: Intervention) -> None:
    assert declared.causes
    assert set(declared.causes) <= set(all_causes())
    assert declared.unless
    assert declared.side_effects
    assert not declared.changes.endswith(".")


def test_the_smallest_change_comes_first() -> None:
    sizes = [i.size for i in interventions_for("half_precision_underflow")]
    assert len(sizes) > 1
    assert sizes == sorted(sizes)


def test_declarations_and_runner_need_no_torch() -> None:
    code = (
        "import sys; from neuraldbg.experiments import runner, verify, plan, results, notebook; "
        "from neuraldbg.experiments.interventions import all_interventions; "
        "assert all_interventions(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
