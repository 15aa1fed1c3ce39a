"""Steps, gradients, rates and settings, each against the same training with it written in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True)


def train(
    steps: int = 5,
    lr: float = 0.05,
    *,
    zero: bool = True,
    sign: float = 1.0,
    clip: float = 0.0,
    schedule: int = 0,
    **settings: Any,
) -> list[float]:
    """A short training; the weights at its end."""  # fmt: skip
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, **settings)
    scheduler = StepLR(optimizer, schedule, 0.1) if schedule else None
    for _ in range(steps):
        if zero:
            optimizer.zero_grad()
        (sign * functional.mse_loss(model(X), Y)).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return [p.item() for q in model.parameters() for p in q.flatten()]


@pytest.mark.parametrize(
    ("name", "faulty", "repaired", "known"),
    [
        ("lr_x0.1", {"lr": 0.5}, {"lr": 0.05}, {}),
        ("lr_x100", {"lr": 0.0005}, {"lr": 0.05}, {}),
        ("lr_x10000", {"lr": 0.000005}, {"lr": 0.05}, {}),
        ("lr_hold_first", {"schedule": 2}, {}, {"lr_first": 0.05}),
        ("lr_hold_peak", {"schedule": 2}, {}, {"lr_peak": 0.05}),
        ("zero_grad", {"zero": False}, {}, {}),
        ("negate_loss", {"sign": -1.0}, {}, {}),
        ("no_weight_decay", {"weight_decay": 0.5}, {}, {}),
        ("momentum_0.9", {"momentum": 0.999}, {"momentum": 0.9}, {}),
        ("default_settings", {"momentum": 0.99, "dampening": 0.5}, {}, {}),
        ("no_clipping", {"clip": 1e-4}, {}, {}),
        ("clip_1", {}, {"clip": 1.0}, {}),
        ("scale_loss", {}, {}, {}),
    ],
)
def test_it_does_what_the_repair_would(
    name: str, faulty: dict[str, Any], repaired: dict[str, Any], known: dict[str, Any], act
) -> None:
    wanted = train(**repaired)
    if faulty:
        assert train(**faulty) != pytest.approx(wanted, rel=1e-3)
    action = act(name, **known)
    assert train(**faulty) == pytest.approx(wanted, rel=1e-4)
    assert action.applied


def test_everything_is_put_back(act) -> None:
    from neuraldbg.torch.interventions.patching import restore

    wanted = train(clip=1e-4)
    for name in ("no_clipping", "float32", "dropout_0.1", "clamp_operands", "unscale_before_clip"):
        act(name)
    restore()
    assert train(clip=1e-4) == wanted
    with torch.autocast("cpu", torch.bfloat16):
        assert (X @ X.T).dtype == torch.bfloat16


def test_a_step_is_taken_after_each_backward(act) -> None:
    action = act("step_after_backward")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.clone()
    functional.mse_loss(model(X), Y).backward()
    assert optimizer.state_dict()
    assert action.applied == 1
    assert not torch.equal(model.weight, before)


def test_parameters_without_an_optimizer_get_one(act) -> None:
    action = act("optimize_all")
    hidden, head = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.Adam(head.parameters())
    before = hidden.weight.clone()
    functional.mse_loss(head(hidden(X)), Y).backward()
    optimizer.step()
    assert action.applied == 2
    assert not torch.equal(hidden.weight, before)


def test_parameters_that_only_a_finished_optimizer_holds_get_one(act) -> None:
    action = act("optimize_all")
    trunk, head = nn.Linear(4, 8), nn.Linear(8, 1)
    first = torch.optim.SGD(trunk.parameters(), lr=0.01)
    for _ in range(3):
        first.zero_grad()
        trunk(X).square().mean().backward()
        first.step()
    second = torch.optim.SGD(head.parameters(), lr=0.01)
    before = trunk.weight.clone()
    for step in range(100):
        second.zero_grad()
        functional.mse_loss(head(trunk(X)), Y).backward()
        second.step()
        if step == 20:  # it may only pause
            assert action.applied == 0
    assert action.applied == 2
    assert first.param_groups
    assert not torch.equal(trunk.weight, before)


def test_frozen_parameters_train(act) -> None:
    action = act("unfreeze")
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    functional.mse_loss(model(X), Y).backward()
    optimizer.step()
    assert action.applied
    assert not torch.equal(model[0].weight, before)


def test_detach_lets_gradients_through(act) -> None:
    action = act("no_detach")
    w = torch.ones(3, requires_grad=True)
    ((w * 2).detach() * w).sum().backward()
    assert action.applied
    assert w.grad is not None
    assert w.grad.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize(("name", "grad"), [("train_mode", True), ("eval_mode", False)])
def test_modes_are_set_for_the_pass_only(name: str, grad: bool, act) -> None:
    action = act(name)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    torch.optim.SGD(model.parameters(), lr=0.1)
    model.train(not grad)
    with torch.set_grad_enabled(grad):
        out = model(X)
    assert bool((out == 0).any()) is grad
    assert action.applied
    assert model.training is not grad


def test_gradients_are_unscaled_before_they_are_clipped(act) -> None:
    action = act("unscale_before_clip")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    wanted = torch.autograd.grad(functional.mse_loss(model(X), Y), model.weight)[0]
    scaler.scale(functional.mse_loss(model(X), Y)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e6)
    assert action.applied == 1
    assert torch.allclose(model.weight.grad, wanted)
    scaler.step(optimizer)
    scaler.update()
