"""How a loop is heard: what the boundaries tell is passed on, timed, and never raises."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from neuraldbg.torch import boundaries
from neuraldbg.torch.hooks import in_backward
from neuraldbg.torch.rest import Rest

if TYPE_CHECKING:
    from neuraldbg.torch.guard import Faults


class Hearing(boundaries.Listener, ABC):
    """A listener whose own time is counted and whose own faults become gaps.

    Args:
        faults: Receives our own errors.

    Attributes:
        step: The current step.
        seconds: Our own time so far.
    """

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.step = 0
        self.seconds = 0.0
        self._rest = Rest()
        self._passing = False  # whether a backward pass of ours is under way
        self._step_start = self._entered = time.perf_counter()
        self._ours = 0.0

    def _guard(self, what: str, fn: Callable[[], None]) -> None:
        """Run a piece of ours: time it, and let no exception out."""
        start = self._entered = time.perf_counter()
        try:
            fn()
        except Exception as error:  # ours never reach the training
            self.faults.fault(what, error)
        finally:
            now = time.perf_counter()
            self.seconds += now - start
            self._ours += now - max(start, self._step_start)

    def broke(self, event: str, error: Exception) -> None:
        """Something of ours raised outside of every guard."""
        self.faults.fault(event.replace("_", " "), error)

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """A backward pass is about to start."""
        if not self._rest.left:
            self._guard("the loss", lambda: self._backward(tensors))

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        if self._passing and not in_backward():
            self._guard("the loss", self._after_backward)

    def differentiates(self, tensors: list[Tensor]) -> None:
        """Gradients of parameters are about to be asked for, outside of a backward pass."""
        if not self._rest.left:
            self._guard("the loss", lambda: self._differentiates(tensors))

    def step_begins(self, optimizer: Optimizer) -> None:
        """An optimizer is about to update."""
        if not self._rest.left:
            self._guard("the optimizer step", lambda: self._before_step(optimizer))

    def step_ended(self, optimizer: Optimizer) -> None:
        """An optimizer has updated."""
        if not self._rest.left:
            self._guard("the optimizer step", lambda: self._after_step(optimizer))
        elif self._is_ours(optimizer):
            self.step += 1
            if self._rest.count():
                self._guard("the end of a rest", self._wake)

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        """Gradients are being clipped."""
        if not self._rest.left:
            self._guard("gradient clipping", lambda: self._clip(params, limit, norm))

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        """A loss scaler is at work."""
        self._guard("the loss scale", lambda: self._scaled(scaler, loss, result))

    def scaler_steps(self, optimizer: Optimizer) -> None:
        """A loss scaler is about to let an optimizer update, or to skip that."""
        self._guard("the optimizer step", lambda: self._before_attempt(optimizer))

    def scaler_stepped(self, optimizer: Optimizer) -> None:
        """A loss scaler has let an optimizer update, or has skipped that."""
        self._guard("the optimizer step", self._after_attempt)

    def evaluated(self, loss: Tensor) -> None:
        """A loss was computed that nobody can train on."""
        self._guard("evaluation losses", lambda: self._evaluated(loss))

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was made: from now on steps are its steps."""
        self._guard("a new optimizer", lambda: self._meet_optimizer(optimizer))

    def compiling(self, target: object, backend: str | None) -> None:
        """Something is about to be compiled."""
        self._guard("a compiled model", lambda: self._compiling(target, backend))

    # -- what a loop does with it --------------------------------------------------------

    @abstractmethod
    def _is_ours(self, optimizer: Optimizer) -> bool: ...

    @abstractmethod
    def _backward(self, tensors: list[Tensor]) -> None: ...

    @abstractmethod
    def _differentiates(self, tensors: list[Tensor]) -> None: ...

    @abstractmethod
    def _after_backward(self) -> None: ...

    @abstractmethod
    def _before_step(self, optimizer: Optimizer) -> None: ...

    @abstractmethod
    def _after_step(self, optimizer: Optimizer) -> None: ...

    @abstractmethod
    def _wake(self) -> None: ...

    @abstractmethod
    def _clip(self, params: list[Tensor], limit: float, norm: Tensor) -> None: ...

    @abstractmethod
    def _scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None: ...  # noqa: ANN401

    @abstractmethod
    def _before_attempt(self, optimizer: Optimizer) -> None: ...

    @abstractmethod
    def _after_attempt(self) -> None: ...

    @abstractmethod
    def _evaluated(self, loss: Tensor) -> None: ...

    @abstractmethod
    def _meet_optimizer(self, optimizer: Optimizer) -> None: ...

    @abstractmethod
    def _compiling(self, target: object, backend: str | None) -> None: ...
