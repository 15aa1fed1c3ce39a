"""The boundaries of a training loop outside the model, and who listens to them.

One process-wide set of interceptions, installed while anybody listens and removed with
the last listener: the start of a backward pass, the optimizer's step, gradient clipping
and the loss scaler. All lie outside compiled graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Listener:
    """What can be heard; override what is needed. Implementations must not raise."""

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """A backward pass starts from these tensors."""

    def step_begins(self, optimizer: Optimizer) -> None:
        """An optimizer is about to update."""

    def step_ended(self, optimizer: Optimizer) -> None:
        """An optimizer has updated."""

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        """Gradients of total norm `norm` are being clipped to `limit`."""

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        """A loss scaler turned `loss` into `result`."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was constructed."""

    def scheduler_made(self, scheduler: LRScheduler) -> None:
        """A learning rate scheduler was constructed."""

    def compiling(self, target: object) -> None:
        """Something is about to be wrapped by `torch.compile`."""


LISTENERS: Final[list[Listener]] = []
_undo: list[Callable[[], None]] = []


def listen(listener: Listener) -> None:
    """Start telling `listener`; the first one installs the interceptions."""
    if not LISTENERS:
        _install()
    LISTENERS.append(listener)


def ignore(listener: Listener) -> None:
    """Stop telling `listener`; the last one removes the interceptions."""
    if listener in LISTENERS:
        LISTENERS.remove(listener)
    if not LISTENERS:
        while _undo:
            _undo.pop()()


def tell(event: str, *args: object) -> None:
    """Pass an event to every listener."""
    for listener in tuple(LISTENERS):
        getattr(listener, event)(*args)


def _install() -> None:
    pre = register_optimizer_step_pre_hook(lambda opt, args, kwargs: tell("step_begins", opt))
    post = register_optimizer_step_post_hook(lambda opt, args, kwargs: tell("step_ended", opt))
    _undo.extend((pre.remove, post.remove))
    _replace(torch.autograd, "backward", _backward)
    _replace(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", _clip)
    _replace(torch.amp.GradScaler, "scale", _scale)
    _replace(Optimizer, "__init__", functools.partial(_made, "optimizer_made"))
    _replace(LRScheduler, "__init__", functools.partial(_made, "scheduler_made"))
    _replace(torch, "compile", _compile)
    _replace(torch.nn.Module, "compile", _module_compile)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:  # noqa: ANN401
    """Wrap a function in place, if this version of torch has it."""
    original = owner.__dict__.get(name)
    if original is None:
        return
    ours = wrap(original)
    setattr(owner, name, ours)

    def undo() -> None:
        # Somebody may have wrapped it after us: then theirs stays, and ours is inert.
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, original)

    _undo.append(undo)


def _backward(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        tell("backward_begins", roots)
        return original(tensors, *args, **kwargs)

    return backward


def _clip(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def clip(
        parameters: Any, max_norm: float, total_norm: Tensor, *args: Any, **kwargs: Any
    ) -> None:  # noqa: ANN401, E501
        if not isinstance(parameters, Tensor) and not isinstance(parameters, list):
            parameters = list(parameters)
        params: Iterable[Tensor] = [parameters] if isinstance(parameters, Tensor) else parameters
        tell("clipped", list(params), float(max_norm), total_norm)
        return original(parameters, max_norm, total_norm, *args, **kwargs)

    return clip


def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:  # noqa: ANN401
        result = original(self, outputs)
        if isinstance(outputs, Tensor):
            tell("scaled", self, outputs, result)
        return result

    return scale


def _made(event: str, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        tell(event, self)

    return init


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, A001
        if model is not None:
            tell("compiling", model)
        return original(model, *args, **kwargs)

    return compile


def _module_compile(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def compile(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, A001
        tell("compiling", self)
        return original(self, *args, **kwargs)

    return compile
