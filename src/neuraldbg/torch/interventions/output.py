"""The output of the model and the loss."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from neuraldbg.torch.interventions import Action, Context, action
from neuraldbg.torch.interventions.patching import (
    Inside,
    Operations,
    Replacement,
    functions,
    replace,
    trains,
)
from neuraldbg.torch.succession import held

TINY: Final = 1e-7
COMPARES: Final = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
                   "binary_cross_entropy_with_logits")  # fmt: skip
ACTIVATIONS: Final = ("relu", "sigmoid", "tanh", "softmax", "log_softmax", "softplus", "gelu",
                      "leaky_relu", "elu", "relu_", "hardtanh", "clamp")  # fmt: skip
LARGEST_EXPONENT: Final = 20.0  # exp(20) is 5e8: far from overflow, beyond any sound use
SMALLEST: Final = 1e-6


@action("no_output_activation")
class NoOutputActivation(Action):
    """Takes away the operation that made the model's output, if it is an activation."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._inside = Inside()

    def begin(self) -> None:
        """Remember what each activation was given."""
        Operations({f: self._remember for f in functions(*ACTIVATIONS)}).install()

    def _remember(self, func: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        kept = value.clone() if kwargs.get("inplace") or func is functional.relu_ else value
        out = func(value, *args, **kwargs)
        if self._inside.depth and isinstance(out, Tensor):
            self._before[id(out)] = (out, kept)
        return out

    def model(self, model: nn.Module) -> None:
        """Exchange the outputs."""
        self._inside.watch(model)
        model.register_forward_hook(self._leave)

    def _leave(self, module: nn.Module, args: Any, out: Any) -> Any:
        changed = self._exchange(out)
        self._before.clear()
        return changed

    def _exchange(self, out: Any) -> Any:
        if isinstance(out, (tuple, list)):
            return type(out)(self._exchange(x) for x in out) if type(out) in (tuple, list) else out
        made = self._before.get(id(out)) or self._viewed(out)
        if made is None:
            return out
        self.applied += 1
        return made[1] if made[1].shape == out.shape else made[1].reshape(out.shape)

    def _viewed(self, out: Any) -> tuple[Tensor, Tensor] | None:
        """The activation whose result this is a view of (`squeeze`, `view`)."""
        base = getattr(out, "_base", None)
        found = None if base is None else self._before.get(id(base))
        return found if base is not None and base.numel() == out.numel() else None


@action("fitting_output")
class FittingOutput(Action):
    """Turns probabilities into logits, and logits into probabilities, at the loss."""

    def begin(self) -> None:
        """Come before the loss functions."""
        for name, change in (
            ("cross_entropy", self._log),
            ("nll_loss", self._normalise),
            ("binary_cross_entropy", self._squash),
            ("binary_cross_entropy_with_logits", self._unsquash),
        ):
            replace(functional, name, functools.partial(_first, change))

    def _log(self, value: Tensor) -> Tensor:
        if value.dim() < 2 or not _probabilities(value):
            return value
        self.applied += 1
        return value.clamp_min(TINY).log()

    def _normalise(self, value: Tensor) -> Tensor:
        if value.dim() < 2 or bool((value.exp().sum(1) - 1).abs().max() < 1e-3):
            return value
        self.applied += 1
        return (value.clamp_min(TINY).log() if _probabilities(value)
                else functional.log_softmax(value, 1))  # fmt: skip

    def _squash(self, value: Tensor) -> Tensor:
        if bool(((value >= 0) & (value <= 1)).all()):
            return value
        self.applied += 1
        return torch.sigmoid(value)

    def _unsquash(self, value: Tensor) -> Tensor:
        if not bool(((value >= 0) & (value <= 1)).all()):
            return value
        self.applied += 1
        return torch.logit(value, eps=TINY)


def _probabilities(value: Tensor) -> bool:
    return bool((value >= 0).all() and ((value.sum(1) - 1).abs() < 1e-3).all())


def _first(change: Any, original: Any) -> Any:
    def loss(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(change(input), *args, **kwargs)

    return loss


@action("cross_entropy")
class CrossEntropy(Action):
    """Cross-entropy where a squared or absolute error compares with classes."""

    def begin(self) -> None:
        """Replace the regression losses."""
        original = functional.cross_entropy
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            replace(functional, name, lambda theirs: self._loss(theirs, original))

    def _loss(self, theirs: Any, cross_entropy: Any) -> Any:
        def loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
            classes = _classes(input, target)
            if classes is None:
                return theirs(input, target, *args, **kwargs)
            self.applied += 1
            logits = input.clamp_min(TINY).log() if _probabilities(input) else input
            return cross_entropy(logits, classes)

        return loss


def _classes(input: Tensor, target: Tensor) -> Tensor | None:
    """The class indices, if the target is one-hot."""
    if input.dim() != 2 or input.shape != target.shape or input.shape[1] < 2:
        return None
    binary = bool(((target == 0) | (target == 1)).all() and (target.sum(1) == 1).all())
    return target.argmax(1) if binary else None


@action("equal_shapes")
class EqualShapes(Action):
    """Brings two tensors of equal size to one shape before they are compared."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = Inside()

    def begin(self) -> None:
        """Come before comparisons and differences outside the model."""
        compares = [getattr(functional, name) for name in COMPARES]
        differences = functions("sub", "subtract", "mul", "__sub__", "__rsub__", "__mul__")
        Operations({f: self._change for f in (*compares, *differences)}).install()

    def model(self, model: nn.Module) -> None:
        """Leave what is inside the model alone."""
        self._inside.watch(model)

    def _change(self, func: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._inside.depth and isinstance(a, Tensor) and isinstance(b, Tensor):
            a, b = self._equal(a, b)
        return func(a, b, *args, **kwargs)

    def _equal(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        if a.shape == b.shape or a.numel() != b.numel() or a.numel() < 2:
            return a, b
        self.applied += 1
        return (a, b.reshape(a.shape)) if a.dim() <= b.dim() else (a.reshape(b.shape), b)


@action("mean_reduction")
class MeanReduction(Action):
    """Means in place of sums where the loss is made."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = Inside()

    def begin(self) -> None:
        """Replace `reduction="sum"` and sums to a single number."""
        losses = (f for f in vars(functional).values() if _reduces(f))
        table: dict[Any, Any] = {f: self._mean for f in losses}
        table |= {f: self._sum for f in (torch.sum, Tensor.sum)}
        Operations(table).install()

    def model(self, model: nn.Module) -> None:
        """Leave sums inside the model alone."""
        self._inside.watch(model)

    def _mean(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("reduction") == "sum":
            self.applied += 1
            kwargs["reduction"] = "mean"
        return func(*args, **kwargs)

    def _sum(self, func: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        out = func(value, *args, **kwargs)
        whole = not args and "dim" not in kwargs and trains(value) and value.numel() > 1
        if self._inside.depth or not whole:
            return out
        self.applied += 1
        return out / value.numel()


def _reduces(function: Any) -> bool:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code is not None and "reduction" in code.co_varnames[: code.co_argcount]


@action("sum_per_sample")
class SumPerSample(Action):
    """Errors summed over a sample's entries, then averaged over the batch."""

    def begin(self) -> None:
        """Scale the mean up by the entries of a sample."""
        for name in COMPARES:
            replace(functional, name, self._loss)

    def _loss(self, original: Any) -> Any:
        def loss(input: Tensor, *args: Any, **kwargs: Any) -> Any:
            out = original(input, *args, **kwargs)
            if kwargs.get("reduction", "mean") != "mean" or input.dim() < 2:
                return out
            self.applied += 1
            return out * (input.numel() / len(input))

        return loss


@action("accumulate_mean")
class AccumulateMean(Action):
    """Gradients averaged over the backward passes since the last step."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._passes = 0

    def backward_ended(self) -> None:
        """Count."""
        self._passes += 1

    def step_begins(self, optimizer: Optimizer) -> None:
        """Average."""
        if self._passes > 1:
            self.applied += 1
            for p in held(optimizer):
                if p.grad is not None:
                    p.grad.div_(self._passes)
        self._passes = 0


@action("clamp_operands")
class ClampOperands(Action):
    """Keeps operands where the operation and its gradient are finite."""

    patient = True

    def begin(self) -> None:
        """Come before every operation that can leave the finite numbers."""
        low = {f: self._low for f in functions("log", "log2", "log10", "sqrt", "rsqrt")}
        high = {f: self._high for f in functions("exp", "expm1", "sinh", "cosh", "exp2")}
        division = functions("div", "true_divide", "divide", "__truediv__", "__rtruediv__")
        inverse = {f: self._unit for f in functions("acos", "asin", "atanh")}
        table: dict[Any, Replacement] = {
            **low, **high, **inverse, **{f: self._divide for f in division},
            **{f: self._inverse for f in functions("reciprocal", "__rdiv__")},
            **{f: self._log1p for f in functions("log1p")},
            **{f: self._norm for f in functions("norm")}, torch.linalg.norm: self._norm,
            **{f: self._power for f in functions("pow", "__pow__")},
        }  # fmt: skip
        Operations(table).install()

    def _trains(self, *values: Any) -> bool:
        found = trains(*values)
        self.applied += found
        return found

    def _low(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x.clamp_min(SMALLEST) if self._trains(x) else x, *args, **kwargs)

    def _high(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x.clamp_max(LARGEST_EXPONENT) if self._trains(x) else x, *args, **kwargs)

    def _log1p(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x.clamp_min(SMALLEST - 1) if self._trains(x) else x, *args, **kwargs)

    def _unit(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x.clamp(SMALLEST - 1, 1 - SMALLEST) if self._trains(x) else x, *args, **kwargs)

    def _norm(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x + SMALLEST if self._trains(x) else x, *args, **kwargs)

    def _power(self, func: Any, x: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
        fractional = isinstance(exponent, float) and not exponent.is_integer()
        if isinstance(x, Tensor) and (fractional or _negative(exponent)) and self._trains(x):
            x = x.clamp_min(SMALLEST)
        return func(x, exponent, *args, **kwargs)

    def _inverse(self, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(_away(x) if self._trains(x) else x, *args, **kwargs)

    def _divide(self, func: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        if func is Tensor.__rtruediv__:
            return func(_away(a) if self._trains(a) else a, b, *args, **kwargs)
        if isinstance(b, Tensor) and b.is_floating_point() and self._trains(a, b):
            b = _away(b)
        return func(a, b, *args, **kwargs)


def _negative(exponent: object) -> bool:
    return isinstance(exponent, (int, float)) and exponent < 0


def _away(x: Tensor) -> Tensor:
    """The tensor with entries near 0 moved to the smallest safe size."""
    sign = torch.where(x < 0, -SMALLEST, SMALLEST).to(x.dtype)
    return torch.where(x.abs() < SMALLEST, sign, x)
