"""Changes that leave the trainings alone which come before the one that fails."""

from __future__ import annotations

from torch.optim import Optimizer

from neuraldbg.torch import boundaries
from neuraldbg.torch.boundaries import Listener
from neuraldbg.torch.interventions import Action


class Later(Listener):
    """Listens in an action's place until it is time, and then makes room for it.

    What is made (optimizers, compiled models) is passed on meanwhile: models must be met before
    their first forward pass.

    Args:
        action: Listens from the step in its context on; each step of an optimizer counts as one.
    """

    def __init__(self, action: Action) -> None:
        self._action = action
        self._left = action.context.began

    def broke(self, event: str, error: Exception) -> None:
        """Pass it on."""
        self._action.broke(event, error)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Pass it on."""
        self._action.optimizer_made(optimizer)

    def compiling(self, target: object, backend: str | None) -> None:
        """Pass it on."""
        self._action.compiling(target, backend)

    def step_ended(self, optimizer: Optimizer) -> None:
        """Count it; after the last one before the training that fails, let the action listen."""
        self._left -= 1
        if self._left <= 0:
            boundaries.listen(self._action)
            boundaries.ignore(self)
