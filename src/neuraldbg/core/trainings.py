"""Several trainings in one run, one after the other: each is judged by its own loss.

A teacher before its student, a network that is trained before another reads its output, the
folds of a cross-validation: each has an optimizer of its own, whose losses begin when those
of the one before have ended. What trains together (the two sides of a GAN) is one training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Facts, Kind, ParamFact, root_of
from neuraldbg.core.record import Record, Series

LAST: Final = 10  # losses whose median tells where a training ended
LEARNT: Final = 0.5  # of its first loss, at most, is left of a training that learnt
NEAR: Final = 2.0  # times that end, at most, where the next one takes over
MOST: Final = 12  # trainings that are judged: twelve folds, and no sweep over a hundred rates


@dataclass(frozen=True, slots=True)
class Training:
    """One training among those of a run.

    Attributes:
        optimizers: The numbers of its optimizers.
        first, last: The steps of its first and its last loss.
        continues: Whether it trains on what an earlier one has trained: its loss then may
            begin where there is little left to learn.
    """

    optimizers: tuple[int, ...]
    first: int
    last: int
    continues: bool = False


def trainings(record: Record) -> list[Training]:
    """The trainings of a run in order of time; at most one where nothing tells them apart."""
    spans = [
        Training((index,), int(series.steps[0]), int(series.steps[-1]))
        for index, series in _losses(record)
    ]
    found: list[Training] = []
    for span in sorted(spans, key=lambda span: (span.first, span.optimizers)):
        if found and span.first <= found[-1].last:
            both = (*found[-1].optimizers, *span.optimizers)
            found[-1] = Training(both, found[-1].first, max(found[-1].last, span.last))
        else:
            found.append(span)
    return [_marked(record, training) for training in found[:MOST]]


def _marked(record: Record, training: Training) -> Training:
    """The training, told whether it goes on with what an earlier one has reached."""
    before = _trained_before(record, training)
    updates = record.each(Kind.PARAM, m.P_UPDATE)
    now = {name for name, s in updates if len(_within(s, training))}
    return replace(training, continues=bool(before & now) or _takes_over(record, training, before))


def _takes_over(record: Record, training: Training, before: set[str]) -> bool:
    """Whether another part of a model begins where a part that learnt before has brought the loss.

    So does a correction on top of what was trained and is frozen now.

    Args:
        record: The run.
        training: The later training.
        before: Names of the parameters that were trained earlier.
    """
    models = record.facts.models
    held = {p.name for p in record.facts.params if p.optimizer in training.optimizers}
    if not {root_of(x, models) for x in held} & {root_of(x, models) for x in before}:
        return False
    losses = dict(_losses(record))
    start = float(losses[training.optimizers[0]].values[0])
    earlier = [s.finite().values for s in losses.values() if s.steps[-1] < training.first]
    ends = [(v[0], float(np.median(v[-LAST:]))) for v in earlier if len(v) > LAST]
    return any(0 < end < LEARNT * first and start < NEAR * end for first, end in ends)


def _within(series: Series, training: Training) -> Series:
    return series.between(training.first, training.last)


def _losses(record: Record) -> Iterable[tuple[int, Series]]:
    for name, series in record.each(Kind.LOSS, m.L_VALUE):
        if name == "loss":
            yield 0, series
        elif name.startswith("loss."):
            yield int(name.removeprefix("loss.")), series


def alone(record: Record, training: Training) -> Record:
    """What was observed of one training, as if nothing else had happened in the run.

    Steps keep their numbers. Parameters belong to it that its optimizers hold or changed;
    those of other trainings are left out, with the models that they make up.
    """
    places = {index: i for i, index in enumerate(sorted(training.optimizers))}
    channels = {
        name: part
        for channel, series in record.channels.items()
        if (name := _renamed(channel, places)) is not None
        and len(part := _within(series, training))
    }
    trained = _trained_before(record, training)
    facts = _facts(record.facts, channels, places)
    params = tuple(_as_found(p) if p.name in trained else p for p in facts.params)
    return Record(replace(facts, params=params), channels)


def _trained_before(record: Record, training: Training) -> set[str]:
    """The parameters that were updated before a training began."""
    updates = record.each(Kind.PARAM, m.P_UPDATE)
    return {name for name, s in updates if s.steps[0] < training.first}


def _as_found(param: ParamFact) -> ParamFact:
    """A parameter whose first values are not those that the training found it with."""
    return replace(param, init_mean=None, init_rms=None, init_absmax=None)


def that_began(record: Record, step: int) -> Record:
    """What was observed of the training that began at a step; of the whole run for step 0.

    Where none began just then (another run of the same script), it is the one under way.
    """
    begun = [t for t in trainings(record) if t.first <= step] if step else []
    return alone(record, begun[-1]) if begun else record


def _renamed(channel: Channel, places: dict[int, int]) -> Channel | None:
    """A channel under the optimizer's number within its training; None if it is another's."""
    head, dot, rest = channel.name.partition(".")
    if channel.kind == Kind.LOSS and head == "loss":
        place = places.get(int(rest or 0))
        name = None if place is None else f"loss.{place}" if place else "loss"
    elif channel.kind == Kind.OPTIMIZER and head.isdecimal():
        place = places.get(int(head))
        name = None if place is None else f"{place}{dot}{rest}"
    else:
        return channel
    return None if name is None else channel._replace(name=name)


def _facts(facts: Facts, channels: Iterable[Channel], places: dict[int, int]) -> Facts:
    seen = {c.name for c in channels if c.kind == Kind.PARAM}
    ran = {c.name for c in channels if c.kind == Kind.MODULE}
    own = [_owned(p, places, seen) for p in facts.params if _concerns(p, places, seen)]
    models = facts.models
    held = {p.name for p in own if p.optimizer is not None}
    used = {root_of(name, models) for name in ran | held}
    return replace(
        facts,
        modules=tuple(x for x in facts.modules if root_of(x.name, models) in used),
        params=tuple(p for p in own if root_of(p.name, models) in used),
        optimizers=tuple(
            replace(o, index=places[o.index]) for o in facts.optimizers if o.index in places
        ),
        losses=tuple(replace(x, index=places[x.index]) for x in facts.losses if x.index in places),
    )


def _concerns(param: ParamFact, places: dict[int, int], seen: set[str]) -> bool:
    return param.optimizer is None or param.optimizer in places or param.name in seen


def _owned(param: ParamFact, places: dict[int, int], seen: set[str]) -> ParamFact:
    """A parameter that two trainings share stands under the one that stepped first."""
    held = param.optimizer is not None
    return replace(param, optimizer=places.get(param.optimizer or 0, 0)) if held else param
