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
from neuraldbg.torch.data import is_readable
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

    def settle(self) -> None:
        """A training step begins: what was evaluated before it makes one reading."""
        if self._sum is None:
            return
        number = float(self._sum) / self._count
        self._steps.put(Channel(Kind.LOSS, "evaluation", m.L_VALUE), number)
        self._sum, self._count = None, 0
