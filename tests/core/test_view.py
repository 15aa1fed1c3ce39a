"""What the causes look at."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import extract
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Facts, ModuleFact, OptimizerFact, RunFact
from neuraldbg.core.record import Record
from neuraldbg.core.view import BATCHNORM, DROPOUT, NORMALISATION, View, drop_probability

from .records import STEPS, Draft, classifier


def view(draft: Draft) -> View:
    """The view of a draft with its events."""
    record = draft.build()
    return View(record, extract(record))


def nothing() -> View:
    """The view of a run of which nothing was seen."""
    return View(Record(Facts(RunFact(id="r"))), ())


# -- facts ---------------------------------------------------------------------------------


def test_layers_are_modules_with_weights_in_order_of_execution() -> None:
    draft = classifier().module("norm", "LayerNorm", before="fc2").param("norm.weight", (64,))
    draft.module("own", "MyLinear", before="fc3").param("own.weight", (64, 64))
    draft.layer("unused", 4, 4).change_module("unused", calls=0)
    assert [x.name for x in view(draft).layers] == ["fc1", "fc2", "own", "fc3"]


def test_a_container_with_a_weight_of_its_own_is_no_layer() -> None:
    draft = classifier().param("weight", (4, 4))
    assert "" not in [x.name for x in view(draft).layers]


def test_weights_are_the_matrices_that_an_optimizer_holds() -> None:
    draft = classifier().change_param("fc2.weight", optimizer=None)
    assert [p.name for p in view(draft).weights] == ["fc1.weight", "fc3.weight"]


def test_parameters_of_a_module_are_those_it_owns_itself() -> None:
    draft = classifier().module("a", "Block").param("a.w", (2, 2)).param("a.b.w", (2, 2))
    assert [p.name for p in view(draft).params_of("a")] == ["a.w"]
    assert view(draft).params_of("nowhere") == []


def test_modules_are_found_by_class() -> None:
    draft = classifier().module("n", "BatchNorm1d").module("d", "Dropout", p=0.3)
    assert [x.name for x in view(draft).kinds(BATCHNORM)] == ["n"]
    assert [x.name for x in view(draft).kinds(DROPOUT)] == ["d"]
    assert BATCHNORM < NORMALISATION


def test_the_first_loss_counts() -> None:
    found = view(classifier()).loss
    assert found is not None
    assert found.kind == "cross_entropy"
    assert nothing().loss is None


def test_notes_are_counted() -> None:
    found = view(classifier().notes(autocast="float16"))
    assert found.note("autocast") == "float16"
    assert found.note("nothing") is None
    assert found.count(m.N_BACKWARDS) == STEPS
    assert found.count("autocast") == 0
    assert found.count("nothing") == 0


def test_settings_are_those_of_the_first_group_that_has_a_number() -> None:
    found = view(classifier().change_optimizer("SGD", lr=0.5, nesterov=True, foreach=None))
    assert found.setting("lr") == 0.5
    assert found.setting("nesterov", 7.0) == 7.0
    assert found.setting("foreach", 7.0) == 7.0
    assert math.isnan(found.setting("eps"))
    assert math.isnan(nothing().setting("lr"))


def test_a_setting_that_the_first_optimizer_lacks_is_not_the_seconds() -> None:
    draft = classifier().change_optimizer("Adam", lr=0.001)
    draft.optimizers.append(OptimizerFact(1, "SGD", ({"lr": 0.1, "momentum": 0.99},)))
    assert math.isnan(view(draft).setting("momentum"))


@pytest.mark.parametrize(("kind", "adaptive"), [("AdamW", True), ("SGD", False), ("Mine", False)])
def test_an_adaptive_optimizer_rescales_gradients(kind: str, adaptive: bool) -> None:
    assert view(classifier().change_optimizer(kind, lr=0.1)).adaptive is adaptive
    assert not nothing().adaptive


@pytest.mark.parametrize(("p", "expected"), [(0.3, 0.3), (1, 1.0), ("x", 0.0), (None, 0.0)])
def test_the_probability_of_a_dropout(p: float | str | None, expected: float) -> None:
    assert drop_probability(ModuleFact("d", "Dropout", config={"p": p})) == expected
    assert drop_probability(ModuleFact("d", "Linear")) == 0.0


# -- series --------------------------------------------------------------------------------


def test_the_usual_value_is_a_median_of_the_first_looks() -> None:
    found = view(classifier().of_module("fc1", act_rms=np.arange(50.0)))
    rms = found.module("fc1", m.ACT_RMS)
    assert found.usual(rms) == 24.5
    assert found.usual(rms, 3) == 1.0
    assert math.isnan(found.usual(found.module("fc1", "nothing")))


def test_ratios_are_those_of_weights_that_do_not_start_at_zero() -> None:
    draft = classifier().change_param("fc2.weight", init_rms=0.0)
    draft.of_param("fc3.weight", update_ratio=np.nan)
    assert view(draft).ratios == {"fc1.weight": 3e-3}


def test_ratios_are_early_ones() -> None:
    late = np.full(50, 9.0)
    late[:10] = 0.01
    assert view(classifier().of_param("fc1.weight", update_ratio=late)).ratios["fc1.weight"] == 0.01


def test_the_rate_is_that_of_the_first_group() -> None:
    assert view(classifier()).lr.values.tolist() == [0.05] * STEPS
    assert len(nothing().lr) == 0


def test_sites_of_every_kind_can_be_read() -> None:
    found = view(classifier())
    assert found.batch("input", m.B_SIZE).median() == 32
    assert found.param("fc1.weight", m.P_GRAD).median() == 0.5


# -- symptoms ------------------------------------------------------------------------------


def events() -> tuple[SemanticEvent, ...]:
    """Two layers that die, one of them twice."""
    return tuple(
        SemanticEvent(f"e{i}", EventType.ACTIVATION, where, i, "healthy", "dead")
        for i, where in enumerate(["b", "a", "b"])
    )


def test_places_of_events_come_once_in_order() -> None:
    found = View(classifier().build(), events())
    assert found.where(EventType.ACTIVATION, "dead") == ["b", "a"]
    assert found.where(EventType.GRADIENT, "dead") == []


def test_the_first_event_of_a_kind() -> None:
    found = View(classifier().build(), events())
    assert found.first(EventType.ACTIVATION, "dead") == events()[0]
    assert found.first(EventType.ACTIVATION, "saturated") is None


def test_failure_supports_a_cause_and_success_opposes_it() -> None:
    failing, learning = view(classifier().stays()), view(classifier())
    assert failing.fails(2.0, 4.0).weight == pytest.approx(2.0, abs=0.1)
    assert learning.fails(2.0, 4.0).weight == -4.0
    assert learning.fails().where == "loss"
