"""Losses that are computed outside training: what the user's own validation sees.

The loss functions of `torch.nn.functional` are wrapped while somebody watches. A result
that wants no gradient is an evaluation; inside compiled code nothing is wrapped.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.torch.data import is_readable, table
from neuraldbg.torch.streams import Stream

LOSSES: Final = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
)


ASKED: Final = (m.B_MEAN, m.B_STD)
FEW: Final = 8  # samples whose mean and spread say little of all
SAMPLED: Final = 64  # entries of an input that are compared


class Repetition:
    """Counts passes whose input is that of the pass before: answers drawn several times.

    Attributes:
        count: How many there were among the first `EVAL_COMPARED` passes.
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen = 0
        self._last: Tensor | None = None

    def see(self, value: Tensor) -> None:
        """One more pass with this input."""
        self._seen += 1
        if self._seen > m.EVAL_COMPARED or not is_readable(value):
            self._last = None
            return
        flat = value.detach().reshape(-1)
        sample = flat[:: max(len(flat) // SAMPLED, 1)].cpu().clone()
        self.count += self._last is not None and torch.equal(sample, self._last)
        self._last = sample


def asked(value: Tensor) -> Tensor | None:
    """Mean and spread of an evaluation's input, shape (2,), on its device: nothing waits.

    None for what is no batch of measured numbers.
    """
    if not value.is_floating_point() or not is_readable(value) or value.dim() < 2:
        return None
    if len(value) < FEW:
        return None
    rows = table(value)
    return torch.stack([rows.mean(), rows.std(correction=0)])


def is_evaluation(result: Any) -> bool:  # noqa: ANN401 - the result of a loss function
    """Whether a loss was computed without any wish to train on it."""
    single = isinstance(result, Tensor) and result.numel() == 1 and not result.is_meta
    return single and not result.requires_grad


class EvaluationSide:
    """Averages evaluation losses between two training steps.

    Args:
        steps: Where readings go.
    """

    def __init__(self, steps: Stream) -> None:
        self._steps = steps
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, result: Tensor) -> None:
        """One more evaluation loss; nothing waits for the device."""
        value = result.detach().float()
        self._sum = value if self._sum is None else self._sum + value
        self._count += 1

    def settle(self, given: Tensor | None) -> None:
        """A training step is over: what was evaluated before it makes one reading.

        Args:
            given: What the model was asked there, see `asked`.
        """
        for metric, number in zip(ASKED, () if given is None else given.tolist(), strict=False):
            self._steps.put(Channel(Kind.BATCH, "evaluation", metric), number)
        if self._sum is None:
            return
        number = float(self._sum) / self._count
        self._steps.put(Channel(Kind.LOSS, "evaluation", m.L_VALUE), number)
        self._sum, self._count = None, 0
