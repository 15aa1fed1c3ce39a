"""Optimizers that are made anew for the same parameters, epoch after epoch or step after step.

They are one training, and count as one optimizer: as so many, each would have a loss of its
own with a few readings, and what is kept would grow with every one of them.
"""

from __future__ import annotations

import weakref
from typing import Final

from torch import Tensor
from torch.optim import Optimizer

# A rate that differs by more begins another training (fine-tuning after pre-training); a
# schedule by hand, which makes an optimizer for each of its rates, changes it by less.
SAME_RATE: Final = 3.0

Mark = tuple[type[Optimizer], tuple[weakref.ref[Tensor], ...]]


class Lines:
    """Tells whose place a new optimizer takes.

    Attributes:
        renewed: How often that was one.
    """

    def __init__(self) -> None:
        self.renewed = 0
        self._marks: list[Mark] = []
        self._rates: list[float | None] = []
        self._before: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def begin(self, optimizer: Optimizer) -> None:
        """An optimizer begins a line of its own, the next in number."""
        self._before.add(optimizer)
        self._rates.append(_rate(optimizer))
        self._marks.append((type(optimizer), tuple(map(weakref.ref, held(optimizer)))))

    def heir(self, optimizer: Optimizer) -> int | None:
        """Let an optimizer take the place that is its own by `line`.

        Args:
            optimizer: One that steps for the first time, or again after another took its place.

        Returns:
            The number of the line; None if it begins one.
        """
        line = self.line(optimizer)
        if line is not None:
            self._before.add(optimizer)
            self._rates[line] = _rate(optimizer)
            self.renewed += 1
        return line

    def line(self, optimizer: Optimizer) -> int | None:
        """The number of the line that an optimizer continues or will; None if none."""
        if optimizer in self._before:
            return None
        lines = reversed(range(len(self._marks)))
        return next((i for i in lines if self._continues(i, optimizer)), None)

    def _continues(self, line: int, optimizer: Optimizer) -> bool:
        kind, params = self._marks[line]
        own = held(optimizer)
        if type(optimizer) is not kind or len(own) != len(params):
            return False
        same = all(ref() is param for ref, param in zip(params, own, strict=True))
        return same and self._keeps_rate(line, optimizer)

    def _keeps_rate(self, line: int, optimizer: Optimizer) -> bool:
        old, new = self._rates[line], _rate(optimizer)
        if not old or not new:
            return old == new
        return max(old, new) <= SAME_RATE * min(old, new)


def _rate(optimizer: Optimizer) -> float | None:
    """The learning rate of the first group; None for a tensor, which may be on a device."""
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return float(rate) if isinstance(rate, (int, float)) else None


def held(optimizer: Optimizer) -> list[Tensor]:
    """The parameters that an optimizer holds."""
    return [p for group in optimizer.param_groups for p in group["params"]]
