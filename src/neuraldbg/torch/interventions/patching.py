"""Replacing functions of torch for the time of a trial."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from neuraldbg.torch import boundaries
from neuraldbg.torch.boundaries import Listener

Replacement = Callable[..., Any]
_undo: list[Callable[[], object]] = []


def restore() -> None:
    """Put every original back; needed only where the process goes on after a trial."""
    while _undo:
        _undo.pop()()


def replace(owner: Any, name: str, make: Callable[[Any], Replacement]) -> None:
    """Put `make(original)` in the place of a function, until `restore()`."""
    original = owner.__dict__[name]
    made = make(original)

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs)

    setattr(owner, name, ours)
    _undo.append(lambda: setattr(owner, name, original))


class Operations(TorchFunctionMode):
    """Passes every operation of eager torch code by a table of replacements.

    Operations of an optimizer's step are left alone.

    Args:
        table: Function of torch -> replacement; called with the function and its
            arguments, as `replacement(function, *args, **kwargs)`.
        rest: Called for every other function.
    """

    def __init__(self, table: dict[Any, Replacement], rest: Replacement | None = None) -> None:
        super().__init__()
        self._table = table
        self._rest = rest
        self._pause = _InStep()
        boundaries.listen(self._pause)

    def install(self) -> None:
        """Come before every operation from now on."""
        self.__enter__()  # type: ignore[no-untyped-call]
        _undo.append(self._remove)

    def _remove(self) -> None:
        boundaries.ignore(self._pause)
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """One operation."""
        kwargs = kwargs or {}
        change = None if self._pause.stepping else self._table.get(func, self._rest)
        return func(*args, **kwargs) if change is None else change(func, *args, **kwargs)


class _InStep(Listener):
    """Whether an optimizer is at work."""

    def __init__(self) -> None:
        self.stepping = 0

    def step_begins(self, optimizer: Optimizer) -> None:
        self.stepping += 1

    def step_ended(self, optimizer: Optimizer) -> None:
        self.stepping = max(self.stepping - 1, 0)


class Inside:
    """Whether a forward pass of one of the models is under way (eager code)."""

    def __init__(self) -> None:
        self.depth = 0

    def watch(self, model: nn.Module) -> None:
        """Follow the forward passes of a model."""
        model.register_forward_pre_hook(self._enter)
        model.register_forward_hook(self._leave, always_call=True)

    def _enter(self, *_: Any) -> None:
        self.depth += 1

    def _leave(self, *_: Any) -> None:
        self.depth -= 1


def functions(*names: str) -> list[Any]:
    """The functions of that name on tensors, in `torch` and in `torch.nn.functional`."""
    homes = (torch, Tensor, nn.functional)
    found = [getattr(home, name, None) for home in homes for name in names]
    return [f for f in found if f is not None]


def trains(*values: Any) -> bool:
    """Whether gradients flow through any of the values."""
    return torch.is_grad_enabled() and any(
        isinstance(v, Tensor) and v.requires_grad for v in values
    )
