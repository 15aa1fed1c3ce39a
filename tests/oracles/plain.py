"""Slow and obvious: what crosses each module boundary, and its statistics."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.core import metrics as m

Calls = dict[str, list[Tensor]]


def main_tensor(value: Any) -> Tensor | None:
    """The tensor of a module's output that is looked at: the first floating one."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        value = list(value.values())
    found = [main_tensor(part) for part in value] if isinstance(value, (tuple, list)) else []
    return next((t for t in found if t is not None and t.dim()), None)


class Plain:
    """Ordinary hooks on every module that keep a copy of all they see.

    Attributes:
        outputs, inputs, gradients: Copies of the current step by module name.
        steps: The three of each finished step.
    """

    def __init__(self, model: nn.Module) -> None:
        self.steps: list[tuple[Calls, Calls, Calls]] = []
        self._clear()
        for name, module in model.named_modules():
            module.register_forward_hook(self._hook(name))

    def _clear(self) -> None:
        self.outputs: Calls = defaultdict(list)
        self.inputs: Calls = defaultdict(list)
        self.gradients: Calls = defaultdict(list)

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            value = main_tensor(output)
            if not torch.is_grad_enabled() or value is None:
                return
            given = main_tensor(args)
            if given is not None:
                self.inputs[name].append(given.detach().clone())
            self.outputs[name].append(value.detach().clone())
            if value.requires_grad and not value.is_leaf:
                value.register_hook(lambda g: self.gradients[name].append(g.detach().clone()))

        return hook

    def end_step(self) -> None:
        """Close the books of a step."""
        self.steps.append((self.outputs, self.inputs, self.gradients))
        self._clear()


def units_of(value: Tensor, axis: int | None) -> list[Tensor]:
    """The entries of each unit (channel) of a tensor; none without an axis or a batch."""
    if axis is None or value.dim() < 2:
        return []
    return [part.reshape(-1) for part in value.unbind(axis)]


def outside(value: Tensor, kind: str | None) -> int:
    """How many entries lie where an activation is flat, one by one."""
    if kind is None:
        return 0
    slope = {"sigmoid": lambda y: y * (1 - y) / 0.25, "tanh": lambda y: 1 - y * y}[kind]
    return sum(slope(y) < 0.06 for y in value.double().reshape(-1).tolist())


def output_statistics(
    calls: list[Tensor], axis: int | None, flat: str | None = None
) -> dict[str, float]:
    """The statistics of a module's outputs over all calls of a step."""
    count = sum(t.numel() for t in calls)
    units = [u for t in calls for u in units_of(t, axis)]
    low = min(float(t.min()) for t in calls)
    high = max(float(t.max()) for t in calls)
    return {
        m.ACT_MEAN: sum(float(t.reshape(-1).sum()) for t in calls) / count,
        m.ACT_RMS: rms(calls),
        m.ACT_ABSMAX: max(float(t.abs().max()) for t in calls),
        m.ACT_LOW: low,
        m.ACT_HIGH: high,
        m.ACT_ZERO: sum(int((t == 0).sum()) for t in calls) / count,
        m.ACT_NEGATIVE_UNITS: share([bool((u <= 0).all()) for u in units]),
        m.ACT_CONSTANT_UNITS: share([bool((u == u[0]).all()) for u in units]),
        m.ACT_FLAT: sum(outside(t, flat) for t in calls) / count,
        m.ACT_NONFINITE: float(sum(int((~torch.isfinite(t)).sum()) for t in calls)),
    }


def gradient_statistics(calls: list[Tensor]) -> dict[str, float]:
    """The statistics of the gradients with respect to a module's outputs."""
    count = sum(t.numel() for t in calls)
    return {
        m.GRAD_MEAN: sum(float(t.reshape(-1).sum()) for t in calls) / count,
        m.GRAD_RMS: rms(calls),
        m.GRAD_ABSMAX: max(float(t.abs().max()) for t in calls),
        m.GRAD_ZERO: sum(int((t == 0).sum()) for t in calls) / count,
        m.GRAD_NONFINITE: float(sum(int((~torch.isfinite(t)).sum()) for t in calls)),
    }


def input_statistics(calls: list[Tensor], axis: int) -> dict[str, float]:
    """The statistics of a module's inputs, but for the flat region."""
    count = sum(t.numel() for t in calls)
    units = [u for t in calls for u in units_of(t, axis)]
    dead = share([bool((u <= 0).all()) for u in units])
    return {
        m.IN_RMS: rms(calls),
        m.IN_ABSMAX: max(float(t.abs().max()) for t in calls),
        m.IN_ZERO: sum(int((t == 0).sum()) for t in calls) / count,
        m.IN_DEAD_UNITS: dead if min(float(t.min()) for t in calls) >= 0 else 0.0,
        m.IN_NONFINITE: float(sum(int((~torch.isfinite(t)).sum()) for t in calls)),
    }


def rms(calls: list[Tensor]) -> float:
    """Root mean square, in double precision."""
    squares = sum(float(t.double().square().sum()) for t in calls)
    return math.sqrt(squares / sum(t.numel() for t in calls))


def share(flags: list[bool]) -> float:
    """How many are true, out of all; 0 of none."""
    return sum(flags) / len(flags) if flags else 0.0
