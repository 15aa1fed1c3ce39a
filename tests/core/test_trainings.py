"""Several trainings in one run, told apart and judged each by its own loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neuraldbg.core.chance import chance_level
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.engine import diagnose
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.record import Record, Series
from neuraldbg.core.trainings import MOST, Training, alone, that_began, trainings

from .records import STEPS, Draft, classifier

OWN = {"loss": "loss.{}", "0": "{}", "0.0": "{}.0"}  # names that carry an optimizer's number


def later(draft: Draft, number: int, prefix: str = "student", first: int = STEPS) -> Record:
    """A draft as the training of another model, with another optimizer, that begins later."""
    record = draft.build()

    def moved(channel: Channel, series: Series) -> tuple[Channel, Series]:
        name = channel.name
        if channel.kind in (Kind.MODULE, Kind.PARAM):
            name = f"{prefix}.{name}".rstrip(".")
        elif channel.kind in (Kind.LOSS, Kind.OPTIMIZER) and number:
            name = OWN.get(name, name).format(number)
        return channel._replace(name=name), Series(series.steps + first, series.values)

    facts = record.facts
    return Record(
        replace(
            facts,
            modules=tuple(
                replace(
                    x,
                    name=f"{prefix}.{x.name}".rstrip("."),
                    caller=None if x.name == "" else f"{prefix}.{x.caller}".rstrip("."),
                )
                for x in facts.modules
            ),
            params=tuple(
                replace(p, name=f"{prefix}.{p.name}", optimizer=number) for p in facts.params
            ),
            optimizers=tuple(replace(o, index=number) for o in facts.optimizers),
            losses=tuple(replace(x, index=number) for x in facts.losses),
        ),
        dict(moved(c, s) for c, s in record.channels.items()),
    )


def one_run(*parts: Record) -> Record:
    """The records of one run, put together."""
    first = parts[0].facts
    facts = replace(
        first,
        run=replace(first.run, steps=sum(p.facts.run.steps for p in parts)),
        modules=tuple(x for p in parts for x in p.facts.modules),
        params=tuple(x for p in parts for x in p.facts.params),
        optimizers=tuple(x for p in parts for x in p.facts.optimizers),
        losses=tuple(x for p in parts for x in p.facts.losses),
    )
    channels: dict[Channel, Series] = {}
    for part in parts:
        for channel, series in part.channels.items():
            held = channels.get(channel, Series(np.empty(0, np.int64), np.empty(0)))
            channels[channel] = Series(
                np.concatenate([held.steps, series.steps]),
                np.concatenate([held.values, series.values]),
            )
    return Record(facts, channels)


def teacher() -> Record:
    """The healthy first training."""
    return later(classifier(), 0, "teacher", 0)


def too_slow() -> Draft:
    """A training that learns nothing, at a rate that moves nothing."""
    draft = classifier().stays().change_optimizer("SGD", lr=1e-8)
    draft.of_optimizer("0.0", lr=np.full(STEPS, 1e-8))
    return draft.of_param("*", update_ratio=1e-9, update_norm=1e-9)


def run_of(student: Draft) -> Record:
    """A student after its teacher."""
    return one_run(teacher(), later(student, 1))


def test_one_training_is_one() -> None:
    assert trainings(classifier().build()) == [Training((0,), 0, STEPS - 1)]
    assert trainings(Record(classifier().build().facts)) == []


def test_losses_that_follow_each_other_are_trainings() -> None:
    found = trainings(run_of(classifier()))
    assert found == [
        Training((0,), 0, STEPS - 1),
        Training((1,), STEPS, 2 * STEPS - 1),
    ]


def test_losses_that_overlap_are_one_training() -> None:
    record = one_run(teacher(), later(classifier(), 1, first=STEPS // 2))
    assert trainings(record) == [Training((0, 1), 0, STEPS // 2 + STEPS - 1)]


def test_a_long_sweep_is_not_judged_to_its_end() -> None:
    parts = [later(classifier(), i, f"net{i}", i * STEPS) for i in range(MOST + 2)]
    assert len(trainings(one_run(*parts))) == MOST


def test_a_training_alone_is_as_if_nothing_else_had_happened() -> None:
    record = run_of(classifier())
    part = alone(record, trainings(record)[1])
    plain = classifier().build()
    assert {x.name for x in part.facts.params} == {f"student.{p.name}" for p in plain.facts.params}
    assert {p.optimizer for p in part.facts.params} == {0}
    assert all(x.name.startswith("student") for x in part.facts.modules)
    assert [x.index for x in (*part.facts.optimizers, *part.facts.losses)] == [0, 0]
    loss = part.series(Kind.LOSS, "loss", "value")
    assert loss.steps.tolist() == list(range(STEPS, 2 * STEPS))
    assert loss.values.tolist() == plain.series(Kind.LOSS, "loss", "value").values.tolist()
    assert len(part.series(Kind.OPTIMIZER, "0.0", "lr")) == STEPS
    assert not part.series(Kind.PARAM, "teacher.fc1.weight", "grad_norm")


def test_a_model_that_is_trained_again_goes_on() -> None:
    again = one_run(teacher(), later(classifier(), 1, "teacher"))
    assert [t.continues for t in trainings(again)] == [False, True]
    part = alone(again, trainings(again)[1])
    assert {p.optimizer for p in part.facts.params} == {0}
    assert {p.init_absmax for p in part.facts.params} == {None}  # it begins with trained weights
    assert len(part.series(Kind.PARAM, "teacher.fc1.weight", "grad_norm"))


def test_what_began_at_a_step() -> None:
    record = run_of(classifier())
    assert that_began(record, 0) is record
    for step in (STEPS, STEPS + 7):  # another run may begin a little sooner
        assert that_began(record, step).series(Kind.LOSS, "loss", "value").steps[0] == STEPS


# -- as they are judged ----------------------------------------------------------------------


def told(record: Record) -> Diagnosis:
    """The diagnosis, in which no cause raised."""
    found = diagnose(record)
    assert not found.gaps
    return found


def test_the_training_that_fails_is_told_of() -> None:
    found = told(run_of(too_slow()))
    assert found.verdict == "failed"
    assert found.hypotheses[0].cause == "lr_too_low"
    assert found.began == STEPS
    assert found.hypotheses[0].first_step == STEPS
    assert f"the training that begins at step {STEPS}" in found.headline


def test_the_first_training_is_told_of_where_it_is_the_one_that_fails() -> None:
    record = one_run(later(too_slow(), 0, "teacher", 0), later(classifier(), 1))
    found = told(record)
    assert (found.verdict, found.began) == ("failed", 0)
    assert found.hypotheses[0].cause == "lr_too_low"


def test_two_sound_trainings_are_quiet() -> None:
    found = told(run_of(classifier()))
    assert (found.verdict, found.began) == ("healthy", 0)


def test_going_on_where_little_is_left_to_learn_is_no_failure() -> None:
    """Without a chance level the fall of the loss is all there is, and it has fallen before."""
    gentle = too_slow().stays(0.1).change_loss(kind="custom", parts=())
    assert told(run_of(gentle)).verdict == "failed"
    assert told(one_run(teacher(), later(gentle, 1, "teacher"))).verdict == "healthy"


def test_each_loss_has_the_chance_level_of_its_own_targets() -> None:
    easier = classifier().of_batch("target", entropy=0.7, distinct=2.0)
    record = run_of(easier)
    assert chance_level(record) == chance_level(classifier().build())
    assert chance_level(record, "loss.1") == chance_level(easier.build())


def correction(start: float, prefix: str = "student") -> Record:
    """A model, a part of which is trained after the rest, with a loss that begins so."""
    late = later(too_slow().stays(start), 1, prefix)
    run = one_run(teacher(), late)
    renamed = tuple(replace(x, caller=x.caller or "teacher") for x in late.facts.modules)
    return Record(replace(run.facts, modules=(*teacher().facts.modules, *renamed)), run.channels)


def test_a_part_that_begins_where_the_rest_of_its_model_ended_goes_on() -> None:
    part = "teacher.correction"
    assert [t.continues for t in trainings(correction(0.12, part))] == [False, True]
    assert [t.continues for t in trainings(correction(1.9, part))] == [False, False]
    assert [t.continues for t in trainings(run_of(too_slow().stays(0.12)))] == [False, False]
