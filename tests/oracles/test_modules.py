"""What taps read in eager mode is what ordinary hooks see, to the last bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind

from .conftest import Observe
from .models import CASES, Saved, loss_of
from .plain import Plain
from .twins import BODIES, STEPS, compare, train, twins


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", CASES)
def test_taps_agree_with_ordinary_hooks(name: str, body: str, observe: Observe) -> None:
    case = CASES[name]
    watched, oracle = twins(case)
    plain = Plain(oracle)
    train(oracle, case, BODIES[body], plain.end_step)
    record = observe(watched, lambda: train(watched, case, BODIES[body], lambda: None))
    called = [n for n, module in oracle.named_modules() if not isinstance(module, nn.Sequential)]
    compare(record, case, plain, called)
    assert {f.name for f in record.facts.modules} == {n for n, _ in watched.named_modules()}


@pytest.mark.parametrize("body", ["once", "accumulate", "two_forwards"])
@pytest.mark.parametrize("kind", ["reentrant", "newer", "nested"])
def test_checkpointing_is_counted_once(kind: str, body: str, observe: Observe) -> None:
    """The oracle is the same model without checkpoints."""
    case = CASES["blocks"]
    watched, oracle = twins(case)
    watched.kind = kind
    plain = Plain(oracle)
    train(oracle, case, BODIES[body], plain.end_step)
    record = observe(watched, lambda: train(watched, case, BODIES[body], lambda: None))
    # Gradients are added up in another order under checkpoints.
    compare(record, case, plain, [n for n, _ in oracle.named_modules()], rounding=1e-6)


def test_a_reentrant_checkpoint_adds_no_losses(observe: Observe) -> None:
    """Its own backward pass runs inside the user's."""
    losses = []

    def loop() -> None:
        model = Saved("reentrant")
        model.load_state_dict(watched.state_dict())
        optimizer = torch.optim.SGD(watched.parameters(), lr=0.05)
        for _ in range(STEPS):
            loss = loss_of(watched(torch.randn(4, 6)))
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    watched = Saved("reentrant")
    record = observe(watched, loop)
    assert record.series(Kind.LOSS, "loss", m.L_VALUE).values.tolist() == losses
    assert record.facts.run.notes[m.N_BACKWARDS] == STEPS
