"""A recurrent cell in a hand-written loop: which symbol came first, before the noise?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from neuraldbg.testing.plan import Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, split

SYMBOLS = 4
LENGTH = 25


class Recaller(nn.Module):
    """A rectified recurrent cell whose state starts out as its own memory."""

    def __init__(
        self, width: int = 32, gain: float = 1.0, output: type[nn.Module] | None = None
    ) -> None:
        super().__init__()
        self.cell = nn.RNNCell(SYMBOLS, width, nonlinearity="relu")
        nn.init.eye_(self.cell.weight_hh)
        with torch.no_grad():
            self.cell.weight_hh.mul_(gain)
        nn.init.normal_(self.cell.weight_ih, std=0.3)
        self.readout = nn.Linear(width, SYMBOLS)
        self.out = output(dim=1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, steps: Tensor) -> Tensor:
        """(batch, time, symbols) to scores of shape (batch, symbols)."""
        state = steps.new_zeros(len(steps), self.cell.hidden_size)
        for step in steps.unbind(1):
            state = self.cell(step, state)
        scores: Tensor = self.out(self.readout(state))
        return scores


def data() -> Data:
    """One symbol, then noise."""
    first = torch.randint(SYMBOLS, (1500,))
    steps = 0.1 * torch.randn(1500, LENGTH, SYMBOLS)
    steps[:, 0] = 2.0 * F.one_hot(first, SYMBOLS)
    return split(steps, first)


@program
def first_symbol_rnn() -> Plan:
    """Nine in ten symbols are remembered."""
    return Plan(
        name="first_symbol_rnn",
        task="classes",
        data=data,
        build=Recaller,
        shape={"width": 32, "gain": 1.0, "output": None},
        loss=F.cross_entropy,
        optimizer=SGD,
        settings={"lr": 0.01, "momentum": 0.9},
        measure=accuracy,
        mark=0.9,
        steps=150,
        batch=32,
        clip=1.0,
        evaluate_every=50,
    )
