"""What a trial shows."""

from __future__ import annotations

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Facts, Kind, LossFact, ParamFact, RunFact
from neuraldbg.core.record import Record, Series
from neuraldbg.experiments.outcome import Scope, of

LOOKS = 20
WHOLE = Scope(10**6)


def over(values: float | np.ndarray) -> Series:
    """One reading a step."""
    return Series(np.arange(LOOKS, dtype=np.int64), np.broadcast_to(values, LOOKS).astype(float))


def record(
    grad: float | None, none: float = 0.0, *, looks: int = LOOKS, optimizer: int | None = 0
) -> Record:
    """A run that learns, with one weight that gets this gradient."""
    run = RunFact("r", ("t.py",), ".", "", "0", "3", "2", steps=LOOKS)
    weight = ParamFact("fc.weight", (4, 4), optimizer=optimizer, reached=True)
    channels = {
        Channel(Kind.LOSS, "loss", m.L_VALUE): over(np.geomspace(2.3, 0.1, LOOKS)),
        Channel(Kind.PARAM, "fc.weight", m.P_GRAD_NONE): over(none).between(0, looks - 1),
    }
    if grad is not None:
        channels[Channel(Kind.PARAM, "fc.weight", m.P_GRAD)] = over(grad).between(0, looks - 1)
    return Record(Facts(run, (), (weight,), (), (LossFact(kind="mse"),), ()), channels)


def test_a_weight_that_never_got_a_gradient_is_counted() -> None:
    assert of(record(0.0), WHOLE).deaf == 1
    assert of(record(None, none=1.0), WHOLE).deaf == 1
    assert of(record(1e-9), WHOLE).deaf == 0


def test_two_looks_are_too_few_to_call_it_never() -> None:
    assert of(record(0.0, looks=2), WHOLE).deaf == 0


def test_a_weight_that_no_optimizer_holds_is_not_asked() -> None:
    assert of(record(0.0, optimizer=None), WHOLE).deaf == 0
