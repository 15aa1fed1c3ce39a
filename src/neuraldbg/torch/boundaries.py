"""The boundaries of a training loop outside the model, and who listens to them.

One process-wide set of interceptions, installed while anybody listens and removed with
the last listener: the start of a backward pass, the optimizer's step, gradient clipping
and the loss scaler. All lie outside compiled graphs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from neuraldbg.torch.compile import is_switched_off
from neuraldbg.torch.evaluation import LOSSES, is_evaluation
from neuraldbg.torch.shield import disable, skip, skip_all
from neuraldbg.torch.taps import InputTap, ModuleTap, PredictionTap, Tap, is_training_code


class Listener:
    """What can be heard; override what is needed."""

    def broke(self, event: str, error: Exception) -> None:
        """A method of this listener raised; raise again to let the training know."""
        raise error

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """A backward pass starts from these tensors."""

    def backward_ended(self) -> None:
        """The backward pass that began last has ended."""

    def differentiates(self, tensors: list[Tensor]) -> None:
        """`torch.autograd.grad` is about to give the gradients of parameters."""

    def step_begins(self, optimizer: Optimizer) -> None:
        """An optimizer is about to update."""

    def step_ended(self, optimizer: Optimizer) -> None:
        """An optimizer has updated."""

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor) -> None:
        """Gradients of total norm `norm` are being clipped to `limit`."""

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        """A loss scaler turned `loss` into `result`."""

    def scaler_steps(self, optimizer: Optimizer) -> None:
        """A loss scaler is about to let an optimizer update, or to skip that."""

    def scaler_stepped(self, optimizer: Optimizer) -> None:
        """A loss scaler has let an optimizer update, or has skipped that."""

    def evaluated(self, loss: Tensor) -> None:
        """A loss was computed that nobody can train on."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was constructed."""

    def scheduler_made(self, scheduler: LRScheduler) -> None:
        """A learning rate scheduler was constructed."""

    def compiling(self, target: object, backend: str | None) -> None:
        """Something is about to be wrapped by `torch.compile`."""


LISTENERS: Final[list[Listener]] = []
_undo: list[Callable[[], None]] = []
_wrappers: list[Callable[..., Any]] = []


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
        _wrappers.clear()
        while _undo:
            _undo.pop()()


def tell(event: str, *args: Any, when: Callable[..., bool] | None = None) -> None:  # noqa: ANN401
    """Pass an event to every listener.

    Args:
        event: The method to call.
        args: Its arguments.
        when: If given, asked first whether the event is worth telling.
    """
    for listener in tuple(LISTENERS):
        try:
            if when is None or when(*args):
                getattr(listener, event)(*args)
        except Exception as error:  # ours never reach the training
            listener.broke(event, error)


def _step_begins(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ANN401
    tell("step_begins", optimizer)


def _step_ended(optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ANN401
    tell("step_ended", optimizer)


def _install() -> None:
    pre = register_optimizer_step_pre_hook(_step_begins)
    post = register_optimizer_step_post_hook(_step_ended)
    _undo.extend((pre.remove, post.remove))
    _replace(torch.autograd, "backward", _backward)
    _replace(torch.autograd, "grad", _grad)
    _replace(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", _clip)
    _replace(torch.amp.GradScaler, "scale", _scale)
    _replace(torch.amp.GradScaler, "step", _scaler_step)
    _replace(Optimizer, "__init__", functools.partial(_made, "optimizer_made"))
    _replace(LRScheduler, "__init__", functools.partial(_made, "scheduler_made"))
    for name in LOSSES:
        _replace(torch.nn.functional, name, _evaluated)
    _replace(torch, "compile", _compile)
    _replace(torch.nn.Module, "compile", _module_compile)
    _hide()


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:  # noqa: ANN401
    """Wrap a function in place, if this version of torch has it."""
    original = owner.__dict__.get(name)
    if original is None:
        return
    wrapped = wrap(original)

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        # What the user compiles is left as it is.
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        return wrapped(*args, **kwargs)

    ours.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined] # TorchScript asks
    _wrappers.extend((ours, wrapped))
    setattr(owner, name, ours)

    def undo() -> None:
        # Somebody may have wrapped it after us: then theirs stays, and ours is inert.
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, original)

    _undo.append(undo)


def _hide() -> None:
    """Hide our functions from Dynamo, if it is there."""
    if "torch._dynamo" in sys.modules:
        skip(_wrappers)
        disable((tell, _step_begins, _step_ended))
        taps = (ModuleTap, InputTap, PredictionTap)
        skip_all((Tap.__call__, *(tap.at for tap in taps), ModuleTap.on_gradient))


def _backward(original: Callable[..., None]) -> Callable[..., None]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if not isinstance(tensors, (Tensor, tuple)):
            tensors = list(tensors)
        roots = [tensors] if isinstance(tensors, Tensor) else tensors
        tell("backward_begins", [t for t in roots if isinstance(t, Tensor)])
        original(tensors, *args, **kwargs)
        tell("backward_ended")

    return backward


def _grad(original: Callable[..., Any]) -> Callable[..., Any]:
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        inputs = inputs if isinstance(inputs, Tensor) else tuple(inputs)
        outputs = outputs if isinstance(outputs, Tensor) else tuple(outputs)
        if _are_trained(inputs) and not kwargs.get("create_graph"):
            tell("differentiates", [outputs] if isinstance(outputs, Tensor) else list(outputs))
        return original(outputs, inputs, *args, **kwargs)

    return grad


def _are_trained(inputs: Any) -> bool:  # noqa: ANN401 - a tensor, or a tuple of them
    """Whether these are parameters; a penalty or an attack asks for gradients of data."""
    wanted = (inputs,) if isinstance(inputs, Tensor) else inputs
    return bool(wanted) and all(isinstance(x, torch.nn.Parameter) for x in wanted)


def _clip(original: Callable[..., None]) -> Callable[..., None]:
    def clip(parameters: Any, max_norm: float, total_norm: Tensor, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        tell("clipped", parameters, float(max_norm), total_norm)
        original(parameters, max_norm, total_norm, *rest, **more)

    return clip


def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any) -> Any:  # noqa: ANN401
        result = original(self, outputs)
        if isinstance(outputs, Tensor):
            tell("scaled", self, outputs, result)
        return result

    return scale


def _scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        tell("scaler_steps", optimizer)
        result = original(self, optimizer, *args, **kwargs)
        tell("scaler_stepped", optimizer)
        return result

    return step


def _evaluated(original: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(*args, **kwargs)
        if not getattr(result, "requires_grad", False):
            tell("evaluated", result, when=_is_evaluation)
        return result

    return loss


def _is_evaluation(result: Any) -> bool:  # noqa: ANN401
    return is_evaluation(result) and is_training_code()


def _made(event: str, original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        tell(event, self)

    return init


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if model is not None and not kwargs.get("disable") and not is_switched_off():
            tell("compiling", model, _name_of(kwargs.get("backend", "inductor")))
        result = original(model, *args, **kwargs)
        _hide()
        return result

    return compile


def _module_compile(original: Callable[..., None]) -> Callable[..., None]:
    def compile(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if not kwargs.get("disable") and not is_switched_off():
            tell("compiling", self, _name_of(kwargs.get("backend", "inductor")))
        return original(self, *args, **kwargs)

    return compile


def _name_of(backend: object) -> str | None:
    return backend if isinstance(backend, str) else getattr(backend, "__name__", None)
