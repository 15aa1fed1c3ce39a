"""The declarations: the public vocabulary, complete and consistent."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuraldbg.core import causes
from neuraldbg.core.causes import CAUSES, PRIOR, Cause, Finding, all_causes, cause, evidence
from neuraldbg.core.engine import diagnose

from ..records import healthy_record

# The ids are public: reports, JSON, plugins and benchmarks use them.
VOCABULARY = frozenset(
    [
        "lr_too_high",
        "lr_too_low",
        "lr_schedule",
        "missing_zero_grad",
        "missing_optimizer_step",
        "params_not_optimized",
        "frozen_params",
        "broken_graph",
        "wrong_update_sign",
        "excessive_weight_decay",
        "excessive_momentum",
        "excessive_clipping",
        "exploding_recurrence",
        "optimizer_misconfigured",
        "init_too_large",
        "init_too_small",
        "init_symmetric",
        "bad_bias_init",
        "saturating_activation",
        "depth_without_normalization",
        "missing_nonlinearity",
        "batchnorm_small_batch",
        "eval_mode_training",
        "train_mode_inference",
        "excessive_dropout",
        "insufficient_capacity",
        "unstable_attention",
        "output_activation_mismatch",
        "wrong_loss",
        "loss_shape_broadcast",
        "loss_reduction_scale",
        "nonfinite_operation",
        "unnormalized_input",
        "unscaled_targets",
        "nonfinite_input",
        "outlier_batch",
        "label_noise",
        "degenerate_targets",
        "class_imbalance",
        "unshuffled_data",
        "degenerate_input",
        "distribution_shift",
        "half_precision_overflow",
        "half_precision_underflow",
        "low_precision_update",
        "clip_before_unscale",
        "rank_divergence",
        "compiler_divergence",
        "overfitting",
    ]
)
DECLARED = sorted(all_causes().values(), key=lambda c: c.id)


@pytest.fixture
def kept() -> Iterator[None]:
    """The registry is afterwards what it was."""
    before = dict(CAUSES)
    yield
    CAUSES.clear()
    CAUSES.update(before)


def test_the_causes_are_exactly_those_of_the_vocabulary() -> None:
    assert set(all_causes()) == VOCABULARY


@pytest.mark.parametrize("declared", DECLARED, ids=lambda c: c.id)
def test_a_declaration_is_complete(declared: Cause) -> None:
    assert declared.title.endswith(".")
    assert declared.chain
    assert all(declared.chain)
    assert declared.repair.endswith(".")
    assert declared.experiment != ""
    assert declared.prior < 0
    assert callable(declared.weigh)
    assert f"{causes.__name__}.{declared.family}" in sys.modules


@pytest.mark.parametrize("declared", DECLARED, ids=lambda c: c.id)
def test_rivals_are_other_causes_with_what_tells_them_apart(declared: Cause) -> None:
    assert declared.id not in declared.rivals
    assert set(declared.rivals) <= VOCABULARY
    assert all(declared.rivals.values())


@pytest.mark.parametrize("declared", DECLARED, ids=lambda c: c.id)
def test_a_cause_yields_only_to_causes_that_do_not_yield_to_it(declared: Cause) -> None:
    known = all_causes()
    assert declared.yields_to <= VOCABULARY - {declared.id}
    assert [c for c in declared.yields_to if declared.id in known[c].yields_to] == []


def test_every_file_of_the_package_declares_a_cause() -> None:
    families = {x.name for x in pkgutil.iter_modules(causes.__path__)}
    assert {c.family for c in all_causes().values()} == families


@pytest.mark.usefixtures("kept")
def test_a_cause_is_registered_with_its_declaration() -> None:
    @cause("mine", "Mine.", explains="dead frozen", repair="Do.", prior=-1.0)
    def weigh(view: object) -> Finding | None:
        return None

    mine = all_causes()["mine"]
    assert mine.explains == {"dead", "frozen"}
    assert (mine.chain, mine.experiment, mine.rivals, mine.references) == ((), None, {}, ())
    assert (mine.family, mine.prior, mine.weigh) == ("test_registry", -1.0, weigh)


@pytest.mark.usefixtures("kept")
def test_a_file_added_to_the_package_adds_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from neuraldbg.core.causes import Finding, cause, evidence\n"
        "@cause('from_a_file', 'From a file.', repair='Remove the file.')\n"
        "def weigh(view):\n"
        "    return Finding((evidence('it is there', 9.0),))\n"
    )
    (tmp_path / "added.py").write_text(code)
    monkeypatch.setattr(causes, "__path__", [*causes.__path__, str(tmp_path)])
    try:
        assert diagnose(healthy_record()).hypotheses[0].cause == "from_a_file"
        assert all_causes()["from_a_file"].family == "added"
    finally:
        del sys.modules[f"{causes.__name__}.added"]
    importlib.invalidate_caches()


def test_evidence_carries_its_numbers() -> None:
    seen = evidence("text", 1.5, where="fc1", step=3, ratio=0.5)
    assert (seen.text, seen.weight, seen.where, seen.step) == ("text", 1.5, "fc1", 3)
    assert seen.values == {"ratio": 0.5}


def test_a_cause_is_unlikely_before_any_evidence() -> None:
    assert PRIOR < -3
