"""Faults for a model and optimizer of your own, undone at the end of the block.

Each is a context manager. Enter it outside of `NeuralDbg`, so that the monitor sees the
fault from the first step, and before the model is compiled:

    with inject.nan_batch(model, at=20), NeuralDbg(model, optimizer) as dbg:
        train(model, optimizer)
    assert_explains(dbg.diagnosis(), "nonfinite_input")
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.errors import UsageError

FAR_BELOW = -50.0


@contextlib.contextmanager
def nan_batch(model: nn.Module, at: int = 0) -> Iterator[None]:
    """One training batch holds a NaN: `nonfinite_input`.

    Args:
        model: The model whose input is spoilt.
        at: Which of its training forward passes, counted from 0.

    Raises:
        UsageError: That pass has no floating-point tensor among its positional arguments.
    """
    passed = 0

    def spoil(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        nonlocal passed
        if not (module.training and torch.is_grad_enabled()):
            return None
        passed += 1
        return _with_nan(args) if passed == at + 1 else None

    handle = model.register_forward_pre_hook(spoil, prepend=True)
    try:
        yield
    finally:
        handle.remove()


def _with_nan(args: tuple[Any, ...]) -> tuple[Any, ...]:
    for i, value in enumerate(args):
        if isinstance(value, Tensor) and value.is_floating_point():
            spoilt = value.clone()
            spoilt.view(-1)[0] = float("nan")
            return (*args[:i], spoilt, *args[i + 1 :])
    kinds = ", ".join(type(value).__name__ for value in args) or "nothing"
    msg = f"no positional argument of the model can hold a NaN (it got {kinds})"
    raise UsageError(msg)


@contextlib.contextmanager
def dead_units(model: nn.Module, layer: str) -> Iterator[None]:
    """A layer's biases put every unit far below zero: `bad_bias_init`.

    Behind it must come a rectifier, as in `Linear` and `ReLU`.

    Args:
        model: The model.
        layer: The name of a layer with a bias, as in `named_modules()`.

    Raises:
        UsageError: There is no such layer, or it has no bias.
    """
    bias = getattr(_layer(model, layer), "bias", None)
    if not isinstance(bias, Tensor):
        msg = f"{layer!r} has no bias that could put its units out of reach; name another layer"
        raise UsageError(msg)
    with _changed([bias], lambda b: b.fill_(FAR_BELOW)):
        yield


@contextlib.contextmanager
def scaled_weights(model: nn.Module, factor: float) -> Iterator[None]:
    """Every weight matrix is multiplied: `init_too_large` or `init_too_small`."""
    weights = [p for p in model.parameters() if p.dim() >= 2]
    with _changed(weights, lambda w: w.mul_(factor)):
        yield


@contextlib.contextmanager
def _changed(params: list[Any], change: Any) -> Iterator[None]:  # noqa: ANN401
    """Change tensors in place, and put their values back at the end."""
    before = [p.detach().clone() for p in params]
    with torch.no_grad():
        for param in params:
            change(param)
    try:
        yield
    finally:
        with torch.no_grad():
            for param, value in zip(params, before, strict=True):
                param.copy_(value)


@contextlib.contextmanager
def detached(model: nn.Module, layer: str) -> Iterator[None]:
    """The graph is cut behind a layer: `broken_graph`.

    Raises:
        UsageError: There is no such layer.
    """

    def cut(module: nn.Module, args: Any, output: Any) -> Any:  # noqa: ANN401
        return output.detach() if isinstance(output, Tensor) else output

    handle = _layer(model, layer).register_forward_hook(cut)
    try:
        yield
    finally:
        handle.remove()


def _layer(model: nn.Module, name: str) -> nn.Module:
    found: nn.Module | None = dict(model.named_modules()).get(name)
    if found is None or not name:
        known = ", ".join(n for n, _ in model.named_modules() if n) or "none"
        msg = f"the model has no layer {name!r}; it has {known}"
        raise UsageError(msg)
    return found


@contextlib.contextmanager
def scaled_lr(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Every learning rate is multiplied: `lr_too_high` or `lr_too_low`.

    A scheduler that was made before sets the rates it has planned all the same.
    """
    for group in optimizer.param_groups:
        group["lr"] *= factor
    try:
        yield
    finally:
        for group in optimizer.param_groups:
            group["lr"] /= factor


@contextlib.contextmanager
def flipped_sign(optimizer: Optimizer) -> Iterator[None]:
    """The optimizer climbs the loss: `wrong_update_sign`.

    Raises:
        UsageError: The optimizer has no `maximize`.
    """
    if not all("maximize" in group for group in optimizer.param_groups):
        msg = f"{type(optimizer).__name__} has no setting maximize that could be flipped"
        raise UsageError(msg)
    _flip(optimizer)
    try:
        yield
    finally:
        _flip(optimizer)


def _flip(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        group["maximize"] = not group["maximize"]


@contextlib.contextmanager
def lost_steps(optimizer: Optimizer) -> Iterator[None]:
    """`optimizer.step()` does nothing: `missing_optimizer_step`."""
    with _idle(optimizer, "step"):
        yield


@contextlib.contextmanager
def kept_gradients(*owners: Optimizer | nn.Module) -> Iterator[None]:
    """`zero_grad()` does nothing: `missing_zero_grad`.

    Args:
        owners: Whatever the loop calls `zero_grad()` on, the optimizer or the model.
    """
    with contextlib.ExitStack() as stack:
        for owner in owners:
            stack.enter_context(_idle(owner, "zero_grad"))
        yield


@contextlib.contextmanager
def _idle(owner: object, method: str) -> Iterator[None]:
    def nothing(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        pass

    before = vars(owner).get(method)
    vars(owner)[method] = nothing
    try:
        yield
    finally:
        del vars(owner)[method]
        if before is not None:
            vars(owner)[method] = before
