"""What the losses say of how well a run learns."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.detect import extract
from neuraldbg.core.events import EventType
from neuraldbg.core.facts import Facts, Kind, RunFact
from neuraldbg.core.learning import Learning
from neuraldbg.core.record import Record, Series

from .records import CLASSES, EVERY, STEPS, Draft, classifier


def judged(draft: Draft) -> Learning:
    """A draft's losses, judged with its events."""
    record = draft.build()
    return Learning(record, extract(record))


# -- trouble -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "kind", "step"),
    [
        (classifier(), "none", None),
        (classifier().stays(), "not_learning", 0),
        (classifier().breaks(70), "nonfinite", 70),
        (classifier().change_loss(kind="custom"), "none", None),
        (classifier().change_loss(kind="custom").stays(), "not_learning", 0),
    ],
)
def test_whether_and_how_a_run_fails(draft: Draft, kind: str, step: int | None) -> None:
    trouble = judged(draft).trouble
    assert (trouble.kind, trouble.step) == (kind, step)
    assert (trouble.level > 0.9) == (kind != "none")
    assert trouble.text


def test_a_run_that_diverges_fails_from_that_step_on() -> None:
    trouble = judged(classifier().diverges()).trouble
    assert (trouble.kind, trouble.level) == ("diverged", 1.0)
    assert trouble.step is not None
    assert trouble.step > 5


def test_a_run_that_diverges_and_comes_back_has_not_failed() -> None:
    values = np.concatenate([np.geomspace(2.3, 200, 60), np.geomspace(200, 0.1, 140)])
    record = classifier().loses(values).build()
    events = extract(record)
    assert any((e.kind, e.after) == (EventType.LOSS, "diverging") for e in events)
    assert Learning(record, events).trouble.kind == "none"


def test_a_loss_that_was_nan_once_and_recovers_is_not_broken() -> None:
    draft = classifier()
    values = draft.build().series(Kind.LOSS, "loss", m.L_VALUE).values.copy()
    values[50] = math.nan
    assert judged(draft.loses(values)).trouble.kind == "none"


def test_trouble_grows_as_less_is_learnt() -> None:
    levels = [judged(classifier().stays(x)).trouble.level for x in (1.8, 2.05, 2.2, 2.3)]
    assert levels == sorted(levels)
    assert levels[0] == 0.0
    assert levels[-1] == pytest.approx(1.0, abs=0.05)


def test_a_few_losses_tell_nothing() -> None:
    trouble = judged(classifier(steps=4).stays()).trouble
    assert (trouble.level, trouble.kind) == (0.0, "none")
    assert "too few" in trouble.text
    assert Learning(Record(Facts(RunFact(id="r"))), ()).trouble.kind == "none"


def test_chance_is_in_the_text() -> None:
    assert "a constant guess gives 2.29" in judged(classifier().stays()).trouble.text
    assert f"{math.log(CLASSES):.2f}" == "2.30"


# -- several losses, and targets that move -----------------------------------------------------


def adversarial(critic: float, other: float) -> Draft:
    """Two optimizers in turn: the critic's loss ends at one value, that of the other at another."""
    draft = classifier().falls(1.4, critic)
    draft.losses = [replace(draft.losses[0], kind="custom", parts=())]
    draft.losses.append(replace(draft.losses[0], index=1))
    second = np.linspace(1.4, other, STEPS)
    draft.put(Kind.LOSS, "loss.1", m.L_VALUE, second)
    channel = next(c for c in draft.channels if c.name == "loss.1")
    draft.channels[channel] = Series(np.arange(STEPS, dtype=np.int64), second)
    return draft


def test_a_critic_at_chance_is_no_failure_while_the_other_learns() -> None:
    assert judged(adversarial(1.38, 0.2)).trouble.kind == "none"
    assert judged(adversarial(1.38, 1.38)).trouble.kind == "not_learning"


def test_nor_is_all_well_where_the_critic_alone_learns() -> None:
    assert judged(adversarial(0.001, 1.38)).learnt < 0.6
    assert judged(adversarial(0.001, 0.001)).learnt == pytest.approx(1.0)


def test_losses_of_a_game_at_rest_tell_nothing() -> None:
    """Two nets in balance: each is asked for constants, and neither loss moves."""
    draft = adversarial(1.38, 1.38)
    asked = draft.losses[0].target
    assert asked is not None
    draft.losses = [replace(x, target=replace(asked, distinct=1)) for x in draft.losses]
    assert judged(draft).trouble.kind == "none"


def test_numbers_of_further_classes_are_no_larger_targets() -> None:
    draft = classifier().of_batch("target", mean=np.linspace(0.5, 5.8, STEPS // EVERY), std=0.5)
    assert judged(draft).learnt > 0.8


def test_a_loss_that_grows_with_its_targets_tells_nothing() -> None:
    draft = classifier().change_loss(kind="custom", parts=()).falls(1.0, 1.2)
    assert judged(draft).trouble.level > 0
    grown = draft.of_batch("target", mean=np.linspace(0.1, 20.0, STEPS // EVERY), std=0.1)
    assert judged(grown).trouble.kind == "none"
    assert judged(grown).learnt == 0.5


def test_a_loss_that_swings_around_zero_tells_nothing() -> None:
    """As the difference of two energies does; a likelihood passes zero once."""
    draft = classifier().stays().change_loss(kind="custom")
    swings = 0.1 * np.sin(np.arange(draft.steps))
    found = Learning(draft.put(Kind.LOSS, "loss", m.L_VALUE, swings).build(), ())
    assert (found.trouble.level, found.learnt) == (0.0, 0.5)
    assert "swings around zero" in found.trouble.text
