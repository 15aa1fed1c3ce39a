"""Plans, and the faults and variations that change them."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from neuraldbg.core.causes import all_causes
from neuraldbg.testing import loop
from neuraldbg.testing.faults import Strength, all_faults, fault
from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import all_programs
from neuraldbg.testing.trial import watch
from neuraldbg.testing.variations import all_variations, variations_of

# Quick ones first: each fault is tried on the first program that it fits.
QUICK = ("digits_mlp", "diabetes_regression", "tumour_logits", "digits_vae", "first_symbol_rnn")
PLANS = {name: all_programs()[name] for name in (*QUICK, *sorted(all_programs()))}


def short(plan: Plan) -> Plan:
    begun = None if plan.pretraining is None else short(plan.pretraining)
    return plan.but(steps=2, evaluate_every=1 if plan.evaluate_every else 0, pretraining=begun)


def runs(plan: Plan) -> None:
    plan = short(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        course = loop.run(plan, 0, loop.pretrained(plan, 0))
    assert 1 <= len(course.losses) <= 2


@pytest.mark.parametrize("name", all_faults())
def test_a_fault_builds_and_runs(name: str) -> None:
    chosen = all_faults()[name]
    for strength in chosen.strengths:
        fitting = (chosen.into(plan, strength) for plan in PLANS.values())
        plan = next(plan for plan in fitting if plan is not None)
    runs(plan)


@pytest.mark.parametrize("name", all_variations())
def test_a_variation_builds_and_runs(name: str) -> None:
    fitting = (dict(variations_of(plan)).get(name) for plan in PLANS.values())
    runs(next(plan for plan in fitting if plan is not None))


@pytest.mark.parametrize("name", PLANS)
def test_a_program_runs(name: str) -> None:
    runs(PLANS[name])


def test_labels_are_in_the_vocabulary() -> None:
    labels = {c for f in all_faults().values() for c in (f.cause, *f.also)}
    assert labels <= set(all_causes())
    assert all(reason for f in all_faults().values() for reason in f.also.values())


def test_two_faults_cannot_share_a_name() -> None:
    def rate_too_high(plan: Plan, _: Strength) -> Plan:
        return plan

    with pytest.raises(ValueError, match="two faults named 'rate_too_high'"):
        fault("lr_too_high")(rate_too_high)


def test_a_change_leaves_the_plan_as_it_was() -> None:
    plan = PLANS["digits_mlp"]
    assert plan.set(lr=1.0).shaped(width=8).edited(nn.Module.train) != plan
    assert plan.settings["lr"] == 0.05
    assert plan.shape["width"] == 64


def test_the_same_seed_gives_the_same_run() -> None:
    plan = PLANS["digits_mlp"].but(steps=5)
    assert loop.run(plan, 3).losses == loop.run(plan, 3).losses != loop.run(plan, 4).losses


def test_nan_is_never_good_enough() -> None:
    assert not PLANS["digits_mlp"].passes(math.nan)
    assert not PLANS["char_transformer"].passes(math.nan)


def test_a_healthy_run_stays_quiet(tmp_path: Path) -> None:
    trial = watch(PLANS["digits_mlp"], 0, tmp_path / "r.ndbg")
    assert not trial.suffered
    assert trial.diagnosis is not None
    assert trial.diagnosis.verdict == "healthy"


@pytest.mark.parametrize(("name", "strength"), [("rate_too_high", 1000), ("never_zeroes", "plain")])
def test_an_injected_fault_is_found(name: str, strength: Strength, tmp_path: Path) -> None:
    chosen = all_faults()[name]
    plan = chosen.into(PLANS["digits_mlp"], strength)
    assert plan is not None
    trial = watch(plan, 0, tmp_path / "r.ndbg", chosen.shows)
    assert trial.suffered
    assert trial.diagnosis is not None
    assert chosen.accepts(trial.diagnosis.hypotheses[0].cause)


def test_a_program_that_breaks_off_is_a_result(tmp_path: Path) -> None:
    def breaks(step: int, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if step == 3:
            raise StopIteration
        return x, y

    trial = watch(PLANS["digits_mlp"].but(batch_edits=(breaks,)), 0, tmp_path / "r.ndbg")
    assert trial.error == "StopIteration: "
    assert trial.suffered
    assert math.isnan(trial.metric)
    assert trial.diagnosis is not None
