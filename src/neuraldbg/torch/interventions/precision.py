"""Number formats, loss scaling and compilation."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.torch.interventions import Action, Context, action
from neuraldbg.torch.interventions.patching import Operations, replace
from neuraldbg.torch.succession import held

HALF: Final = (torch.float16, torch.bfloat16)
SCALE: Final = 1024.0


@action("float32")
class Float32(Action):
    """float32 wherever a half-precision format is asked for."""

    def begin(self) -> None:
        """Switch autocast off, and change every format on the way."""

        def plain(original: Any) -> Any:
            def init(mode: Any, *args: Any, **kwargs: Any) -> None:
                self.applied += 1
                original(mode, *args, **{**kwargs, "enabled": False})

            return init

        replace(torch.autocast, "__init__", plain)
        for name in ("half", "bfloat16"):
            replace(nn.Module, name, lambda _: self._as_float)
        replace(nn.Module, "to", self._to)
        halves = {f: self._tensor_float for f in (Tensor.half, Tensor.bfloat16)}
        Operations(halves, rest=self._any).install()

    def _as_float(self, module: nn.Module) -> nn.Module:
        self.applied += 1
        return module.float()

    def _tensor_float(self, func: Any, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.applied += 1
        return value.float()

    def _to(self, original: Any) -> Any:
        def to(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return original(module, *map(self._wide, args), **self._wide_all(kwargs))

        return to

    def _any(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        return func(*map(self._wide, args), **self._wide_all(kwargs))

    def _wide_all(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {k: self._wide(v) for k, v in kwargs.items()}

    def _wide(self, value: Any) -> Any:
        if isinstance(value, torch.dtype) and value in HALF:
            self.applied += 1
            return torch.float32
        return value


@action("scale_loss")
class ScaleLoss(Action):
    """Backward passes on a larger loss, gradients brought back before the step."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._scaled = False

    def begin(self) -> None:
        """Scale what backward starts from."""

        def make(original: Any) -> Any:
            def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
                if grad_tensors is None and isinstance(tensors, Tensor) and tensors.numel() == 1:
                    grad_tensors = torch.full_like(tensors, SCALE)
                    self._scaled = True
                return original(tensors, grad_tensors, *args, **kwargs)

            return backward

        replace(torch.autograd, "backward", make)

    def step_begins(self, optimizer: Optimizer) -> None:
        """Bring gradients back to their scale, in float32 where the update allows."""
        if not self._scaled:
            return
        self.applied += 1
        for p in held(optimizer):
            if p.grad is not None:
                p.grad.div_(SCALE)


@action("eager")
class Eager(Action):
    """Nothing to do in the process: the trial runs without compilation."""

    def compiling(self, target: object, backend: str | None) -> None:
        """Count what would have been compiled."""
        super().compiling(target, backend)
        self.applied += 1
