"""Ways of watching that are compared: none, NeuralDBG, and what people write by hand."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from workloads import Workload

from neuraldbg import NeuralDbg


@contextlib.contextmanager
def none(work: Workload) -> Iterator[None]:
    """Nobody watches."""
    yield


@contextlib.contextmanager
def control(work: Workload) -> Iterator[None]:
    """Nobody watches either: how far two equal variants are apart on this machine."""
    yield


@contextlib.contextmanager
def _watched(work: Workload, budget: float) -> Iterator[NeuralDbg]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.ndbg"
        with NeuralDbg(work.model, work.optimizer, budget=budget, out=out) as dbg:
            yield dbg


def budget_1(work: Workload) -> contextlib.AbstractContextManager[object]:
    """NeuralDBG at a budget of 1 %."""
    return _watched(work, 0.01)


def default(work: Workload) -> contextlib.AbstractContextManager[object]:
    """NeuralDBG as it comes: a budget of 2 %."""
    return _watched(work, 0.02)


def budget_5(work: Workload) -> contextlib.AbstractContextManager[object]:
    """NeuralDBG at a budget of 5 %."""
    return _watched(work, 0.05)


def dense(work: Workload) -> contextlib.AbstractContextManager[object]:
    """NeuralDBG looking at every step."""
    return _watched(work, float("inf"))


@contextlib.contextmanager
def naive(work: Workload) -> Iterator[None]:
    """Forward hooks with `.item()` on every leaf module, and gradients by full backward hooks."""
    log: dict[str, float] = {}
    inner = getattr(work.model, "_orig_mod", work.model)

    def forward(name: str):  # noqa: ANN202
        def hook(module: nn.Module, args: object, output: object) -> None:
            if isinstance(output, Tensor) and output.is_floating_point():
                value = output.detach()
                log[name] = value.norm().item()
                log[f"{name}.max"] = value.abs().max().item()
                log[f"{name}.zero"] = (value == 0).float().mean().item()

        return hook

    handles = [
        module.register_forward_hook(forward(name))
        for name, module in inner.named_modules()
        if next(module.children(), None) is None
    ]
    yield
    for handle in handles:
        handle.remove()


@contextlib.contextmanager
def param_hooks(work: Workload) -> Iterator[None]:
    """Statistics of every parameter gradient by tensor hooks, as experiment trackers do."""
    log: dict[int, float] = {}

    def hook(key: int):  # noqa: ANN202
        def record(gradient: Tensor) -> None:
            log[key] = gradient.detach().norm().item()
            torch.histc(gradient.detach().float(), bins=64)

        return record

    handles = [p.register_hook(hook(i)) for i, p in enumerate(work.model.parameters())]
    yield
    for handle in handles:
        handle.remove()


@contextlib.contextmanager
def anomaly(work: Workload) -> Iterator[None]:
    """`torch.autograd.set_detect_anomaly(True)`."""
    with torch.autograd.set_detect_anomaly(True):
        yield


VARIANTS = {
    f.__name__: f
    for f in (none, control, default, dense, naive, budget_1, budget_5, param_hooks, anomaly)
}
