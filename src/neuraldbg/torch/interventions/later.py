"""Changes that leave the trainings alone which come before the one that fails."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from neuraldbg.torch.boundaries import Listener
from neuraldbg.torch.interventions import Action


class Later(Listener):
    """Passes steps and backward passes on to an action from a certain step on.

    What is made (optimizers, compiled models) is passed on at once: models must be met before
    their first forward pass.

    Args:
        action: Told from then on.
        began: The step; each step of an optimizer counts as one.
    """

    def __init__(self, action: Action, began: int) -> None:
        self._action = action
        self._left = began

    @property
    def _due(self) -> bool:
        return self._left <= 0

    def broke(self, event: str, error: Exception) -> None:
        """Pass it on."""
        self._action.broke(event, error)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Pass it on."""
        self._action.optimizer_made(optimizer)

    def compiling(self, target: object, backend: str | None) -> None:
        """Pass it on."""
        self._action.compiling(target, backend)

    def scheduler_made(self, scheduler: Any) -> None:
        """Pass it on."""
        self._action.scheduler_made(scheduler)

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.backward_begins(tensors)

    def backward_ended(self) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.backward_ended()

    def step_begins(self, optimizer: Optimizer) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.step_begins(optimizer)

    def step_ended(self, optimizer: Optimizer) -> None:
        """Count it, or pass it on when it is time."""
        if self._due:
            self._action.step_ended(optimizer)
        else:
            self._left -= 1

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.clipped(params, limit, norm)

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.scaled(scaler, loss, result)

    def scaler_steps(self, optimizer: Optimizer) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.scaler_steps(optimizer)

    def scaler_stepped(self, optimizer: Optimizer) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.scaler_stepped(optimizer)

    def evaluated(self, loss: Tensor) -> None:
        """Pass it on when it is time."""
        if self._due:
            self._action.evaluated(loss)
