"""Settings of the optimizer, and clipping."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.torch.interventions import Action, Context, action
from neuraldbg.torch.interventions.patching import replace
from neuraldbg.torch.succession import held

MOMENTUM: Final = 0.9
KEPT: Final = frozenset({"params", "lr", "weight_decay", "maximize", "self", "foreach", "fused"})


class _Settings(Action):
    """Sets options of every group before each step."""

    def wanted(self, optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
        """The options to set."""
        raise NotImplementedError

    def step_begins(self, optimizer: Optimizer) -> None:
        """Set them; what a schedule set meanwhile is overridden."""
        for group in optimizer.param_groups:
            for key, value in self.wanted(optimizer, group).items():
                if key in group and group[key] != value:
                    group[key] = value
                    self.applied += 1


@action("no_weight_decay")
class NoWeightDecay(_Settings):
    """Weight decay 0."""

    def wanted(self, optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
        """Zero."""
        return {"weight_decay": 0.0 if group.get("weight_decay") else group.get("weight_decay")}


@action("momentum_0.9")
class Momentum(_Settings):
    """Momentum and beta1 at their usual value."""

    def wanted(self, optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
        """The usual value of whichever the optimizer has."""
        wanted = {"momentum": MOMENTUM} if group.get("momentum") else {}
        betas = group.get("betas")
        return {**wanted, **({"betas": (MOMENTUM, *betas[1:])} if betas else {})}


@action("default_settings")
class Defaults(_Settings):
    """The defaults of the optimizer's class."""

    def wanted(self, optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
        """Every default but rate and decay."""
        known = inspect.signature(type(optimizer).__init__).parameters
        return {
            name: p.default
            for name, p in known.items()
            if p.default is not inspect.Parameter.empty and name not in KEPT
        }


@action("no_clipping")
class NoClipping(Action):
    """Makes the clipping functions measure only."""

    patient = True

    def begin(self) -> None:
        """Replace what scales the gradients."""
        clip_grad = nn.utils.clip_grad

        def make(_: Any) -> Any:
            def keep(*args: Any, **kwargs: Any) -> None:
                self.applied += 1

            return keep

        replace(clip_grad, "_clip_grads_with_norm_", make)
        for owner in (clip_grad, nn.utils):
            replace(owner, "clip_grad_value_", make)


@action("clip_1")
class ClipToOne(Action):
    """Clips the gradients of a step to norm 1; a non-finite gradient is dropped."""

    patient = True

    def step_begins(self, optimizer: Optimizer) -> None:
        """Clip."""
        found = [p for p in held(optimizer) if p.grad is not None]
        gradients = [p.grad for p in found if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())
        if not bool(torch.isfinite(norm)):
            for p in found:
                p.grad = None
            self.applied += 1
        elif norm > 1:
            for p in found:
                p.grad = None if p.grad is None else p.grad / norm
            self.applied += 1


@action("unscale_before_clip")
class UnscaleFirst(Action):
    """Unscales gradients when they are about to be clipped."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._scaler: Any = None
        self._optimizers: list[weakref.ref[Optimizer]] = []

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:
        """Remember the scaler."""
        self._scaler = scaler

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Remember the optimizer."""
        super().optimizer_made(optimizer)
        self._optimizers.append(weakref.ref(optimizer))

    def begin(self) -> None:
        """Come before the norm is measured."""
        original = nn.utils.clip_grad.clip_grad_norm_

        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            self._unscale({id(p) for p in params})
            return original(params, *args, **kwargs)

        for owner in (nn.utils.clip_grad, nn.utils):
            replace(owner, "clip_grad_norm_", lambda _: clip)

    def _unscale(self, wanted: set[int]) -> None:
        if self._scaler is None or not self._scaler.is_enabled():
            return
        for ref in self._optimizers:
            optimizer = ref()
            if optimizer is None or not wanted & {id(p) for p in held(optimizer)}:
                continue
            state = self._scaler._per_optimizer_states[id(optimizer)]
            if state["stage"].name == "READY":
                self._scaler.unscale_(optimizer)
                self.applied += 1
