"""Training a model twice: watched, and with ordinary hooks as the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record

from .models import Case, loss_of
from .plain import (
    Calls,
    Plain,
    gradient_statistics,
    input_statistics,
    output_statistics,
)

STEPS = 3
# Sums of squares are added up in another order.
ROUNDED = {m.ACT_RMS, m.GRAD_RMS, m.IN_RMS}

Body = Callable[[nn.Module, Tensor], None]


def once(model: nn.Module, batch: Tensor) -> None:
    loss_of(model(batch)).backward()


def accumulate(model: nn.Module, batch: Tensor) -> None:
    for part in batch.chunk(2):
        (loss_of(model(part)) / 2).backward()


def two_forwards(model: nn.Module, batch: Tensor) -> None:
    first, second = (model(part) for part in batch.chunk(2))
    (loss_of(first) + loss_of(second)).backward()


def retained(model: nn.Module, batch: Tensor) -> None:
    loss = loss_of(model(batch))
    loss.backward(retain_graph=True)
    loss.backward()


def evaluated(model: nn.Module, batch: Tensor) -> None:
    """Passes without gradient around the training pass."""
    for context in (torch.no_grad(), torch.inference_mode()):
        model.eval()
        with context:
            model(100 * batch if batch.is_floating_point() else batch)
        model.train()
    once(model, batch)


BODIES = {f.__name__: f for f in (once, accumulate, two_forwards, retained, evaluated)}


def train(model: nn.Module, case: Case, body: Body, end_step: Callable[[], None]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.random.manual_seed(1)
    for step in range(STEPS):
        generator.manual_seed(step)
        batch = case.batch()
        optimizer.zero_grad()
        body(model, batch)
        optimizer.step()
        end_step()


def twins(case: Case) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(7)
    first = case.make()
    second = case.make()
    second.load_state_dict(first.state_dict())
    return first, second


def expected(case: Case, name: str, step: tuple[Calls, Calls, Calls]) -> dict[str, float]:
    outputs, inputs, gradients = step
    found = {}
    if outputs[name]:
        found |= output_statistics(outputs[name], case.axis.get(name), case.flat.get(name))
    if inputs[name] and name in case.reads:
        found |= input_statistics(inputs[name], case.reads[name])
    if gradients[name]:
        found |= gradient_statistics(gradients[name])
    return found


def compare(
    record: Record, case: Case, plain: Plain, watched: list[str], rounding: float = 0.0
) -> None:
    compared = 0
    for i, step in enumerate(plain.steps):
        for name in watched:
            for metric, value in expected(case, name, step).items():
                series = record.series(Kind.MODULE, name, metric)
                read = float(series.values[list(series.steps).index(i)])
                near = max(rounding, 1e-6 if metric in ROUNDED else 0.0)
                # The run file keeps module readings in single precision.
                want = pytest.approx(float(np.float32(value)), rel=near, abs=rounding)
                assert read == want, (i, name, metric)
                compared += 1
    assert compared >= STEPS * len(case.axis) * 10
    # Of equal calls all statistics are equal, however often they are counted.
    calls = {fact.name: fact.calls for fact in record.facts.modules}
    assert {name: calls[name] for name in watched} == {
        name: len(plain.steps[0][0][name]) for name in watched
    }
