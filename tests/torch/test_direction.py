"""Which way a loss moves with the errors in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from neuraldbg.torch.direction import is_maximised

N, T = 6, 20


def made() -> Tensor:
    return torch.randn(N, T, requires_grad=True) * 1.0


CLEAN = torch.randn(N, T)


def sdr(made: Tensor) -> Tensor:
    """The scale-invariant ratio of signal to distortion, in decibels."""
    made = made - made.mean(1, keepdim=True)
    target = (made * CLEAN).sum(1, keepdim=True) / CLEAN.square().sum(1, keepdim=True) * CLEAN
    rest = made - target
    return 10 * torch.log10((target.square().sum(1) + 1e-8) / (rest.pow(2).sum(1) + 1e-8))


def snr(made: Tensor) -> Tensor:
    return 10 * torch.log10(CLEAN.square().mean() / (made - CLEAN).square().mean())


MAXIMISED: dict[str, Callable[[Tensor], Tensor]] = {
    "sdr": lambda p: sdr(p).mean(),
    "snr": snr,
    "psnr": lambda p: 10 * torch.log10(1.0 / F.mse_loss(p, CLEAN)),
    "two logarithms": lambda p: p.square().sum().log() - (p - CLEAN).square().sum().log(),
    "minus a fused error": lambda p: -F.mse_loss(p, CLEAN),
    "minus an error by hand": lambda p: -0.5 * (p - CLEAN).abs().mean(),
    "one less an error": lambda p: 1 - (CLEAN - p).square().mean() / CLEAN.var(),
}
MINIMISED: dict[str, Callable[[Tensor], Tensor]] = {
    "minus sdr": lambda p: -sdr(p).mean(),
    "minus snr": lambda p: -snr(p),
    "an error": lambda p: F.mse_loss(p, CLEAN),
    "its root": lambda p: ((p - CLEAN) ** 2).mean().sqrt(),
    "its logarithm": lambda p: (p - CLEAN).square().mean().log(),
    "a likelihood": lambda p: -(-((p - CLEAN) ** 2) / 2 - p.exp().log()).mean(),
    "classes": lambda p: F.cross_entropy(p, torch.zeros(N, dtype=torch.int64)),
}
MEANT: dict[str, Callable[[Tensor], Tensor]] = {
    "a contrast": lambda p: ((p[:2] - CLEAN[:2]) ** 2).mean() - ((p[2:4] - CLEAN[2:4]) ** 2).mean(),
    "a margin": lambda p: F.relu(1 - (p - CLEAN).pow(2).sum(1)).mean(),
    "a spread": lambda p: -((p - p.mean(0)) ** 2).mean(),
    "a product": lambda p: -(p * CLEAN).mean(),
    "weights of either sign": lambda p: (CLEAN * (p - CLEAN).square()).mean(),
    "a learnt weight": lambda p: p.sum() * (p - CLEAN).square().mean(),
}


@pytest.mark.parametrize("name", MAXIMISED)
def test_losses_that_fall_as_the_error_grows(name: str) -> None:
    assert is_maximised(MAXIMISED[name](made()).grad_fn)


@pytest.mark.parametrize("name", [*MINIMISED, *MEANT])
def test_losses_that_fall_with_the_error_or_tell_of_none(name: str) -> None:
    assert not is_maximised((MINIMISED | MEANT)[name](made()).grad_fn)
