"""Weights and biases before the first step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn

from neuraldbg.torch.interventions import Action, action

SEED: Final = 20_240_229  # redrawing must not move the script's own random numbers


def apart(act: Callable[[nn.Module], None], model: nn.Module) -> None:
    """Act with random numbers of our own."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(SEED)
        act(model)


def own(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The parameters that a module owns itself."""
    found = module.named_parameters(recurse=False)
    return [(name, p) for name, p in found if p.is_floating_point() and p.numel()]


@action("default_init")
class DefaultInit(Action):
    """Draws every layer anew as its class does."""

    def model(self, model: nn.Module) -> None:
        """Draw."""
        apart(self._draw, model)

    def _draw(self, model: nn.Module) -> None:
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None) or getattr(
                module, "_reset_parameters", None
            )
            if callable(reset) and type(module).__module__.startswith("torch."):
                reset()
            else:
                self._own(module)
            self.applied += bool(own(module))

    def _own(self, module: nn.Module) -> None:
        """A module of the user's own: as `nn.Linear` does it."""
        for name, p in own(module):
            if p.dim() >= 2:
                nn.init.kaiming_uniform_(p, a=math.sqrt(5))
            elif "bias" in name:
                nn.init.zeros_(p)


@action("unit_gain_init")
class UnitGain(Action):
    """Rescales every matrix to the variance-preserving scale (Glorot and Bengio, 2010)."""

    def model(self, model: nn.Module) -> None:
        """Rescale."""
        apart(self._rescale, model)

    def _rescale(self, model: nn.Module) -> None:
        for module in model.modules():
            for _, p in own(module):
                if p.dim() < 2:
                    continue
                fan_in = p.shape[1] * math.prod(p.shape[2:])
                target = 1.0 / math.sqrt(fan_in)
                spread = float(p.float().std(dim=0).mean())
                if spread > 0:
                    p.mul_(target / float(p.float().std()))
                else:
                    nn.init.normal_(p, std=target)
                self.applied += 1


@action("zero_biases")
class ZeroBiases(Action):
    """Sets biases to 0."""

    def model(self, model: nn.Module) -> None:
        """Set them."""
        with torch.no_grad():
            for module in model.modules():
                for name, p in own(module):
                    if "bias" in name and bool(p.any()):
                        p.zero_()
                        self.applied += 1
