"""An action at work in this process, undone at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from neuraldbg.torch import boundaries
from neuraldbg.torch.interventions import Action, Context, make
from neuraldbg.torch.interventions.patching import restore

Act = Callable[..., Action]


@pytest.fixture
def act() -> Iterator[Act]:
    """Starts an action by name."""
    started: list[Action] = []

    def begin(name: str, **known: object) -> Action:
        action = make(name, Context.of(known))
        boundaries.listen(action)
        started.append(action)
        action.begin()
        return action

    torch.manual_seed(0)
    yield begin
    restore()  # first: our replacements lie on top of the monitor's
    for action in started:
        boundaries.ignore(action)
