"""Which losses and optimizers are those of the watched models, where others train beside them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Final

from torch import Tensor
from torch.optim import Optimizer

from neuraldbg.torch.loss import leaves
from neuraldbg.torch.succession import held

# Backward passes whose graph is walked at first: do other models train here at all?
FIRST: Final = 16

Marks = tuple[tuple[int, int], ...]


class Concern:
    """Tells the watched models' losses and optimizers from those of others.

    Args:
        params: Gives the watched parameters by name.
        only: Whether to tell them apart at all.
    """

    def __init__(self, params: Callable[[], dict[str, Tensor]], *, only: bool) -> None:
        self._params = params
        self._only = only
        self._walks = 0
        self._strangers = False  # whether losses of other models were met
        self._doubt: Marks | None = None
        self._foreign: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def loss(self, loss: Tensor, *, due: bool) -> bool:
        """Whether a loss is one of the watched models', as far as can be told beforehand.

        Walking the graph on every step would cost too much. Where losses of other models
        were met, `was_foreign` tells on the other steps what the pass has changed.
        """
        self._doubt = None
        if not self._only or loss.grad_fn is None:
            return True
        self._walks += 1
        if not due and self._walks > FIRST:
            self._doubt = self._marks() if self._strangers else None
            return True
        own = {id(p) for p in self._params().values()}
        reached = leaves(loss.grad_fn)
        concerns = not reached or any(id(p) in own for p in reached)
        self._strangers |= not concerns
        return concerns

    def was_foreign(self) -> bool:
        """Whether the pass that has just ended was another model's after all.

        Then it left every watched gradient as it was.
        """
        before, self._doubt = self._doubt, None
        return before is not None and before == self._marks()

    def _marks(self) -> Marks:
        """What changes when a gradient does: which tensor it is, and its version."""
        grads = (param.grad for param in self._params().values())
        return tuple((0, 0) if grad is None else (id(grad), grad._version) for grad in grads)

    def optimizer(self, optimizer: Optimizer, *, due: bool = True) -> bool:
        """Whether an optimizer holds any watched parameter."""
        if not self._only:
            return True
        if optimizer in self._foreign and not due:
            return False
        own = {id(p) for p in self._params().values()}
        if any(id(p) in own for p in held(optimizer)):
            return True
        self._foreign.add(optimizer)
        return False
