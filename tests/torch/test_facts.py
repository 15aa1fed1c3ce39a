"""Static facts of modules, parameters and optimizers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from neuraldbg.core import metrics as m
from neuraldbg.torch import facts


def test_settings_that_say_something() -> None:
    conv = facts.config_of(nn.Conv2d(2, 4, (3, 5), bias=False))
    assert conv == {
        "in_channels": 2,
        "out_channels": 4,
        "kernel_size": "3x5",
        "stride": "1x1",
        "groups": 1,
    }
    assert facts.config_of(nn.Dropout(0.3)) == {"p": 0.3, "inplace": False}
    norm = facts.config_of(nn.LayerNorm((3, 4)))
    assert (norm["normalized_shape"], norm["eps"], norm["bias"]) == ("3x4", 1e-5, True)
    assert facts.config_of(nn.LSTM(2, 3, bidirectional=True))["bidirectional"] is True


def test_the_module_tree() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU().eval())
    found = facts.module_facts(model, "net", {"": 2, "0.0": 0}, {"0.0": 3}, {"1": 5})
    assert [(f.name, f.kind, f.leaf, f.order, f.calls, f.training, f.caller) for f in found] == [
        ("net", "Sequential", False, 2, 0, True, None),
        ("net.0", "Sequential", False, None, 0, True, "net"),
        ("net.0.0", "Linear", True, 0, 3, True, "net.0"),
        ("net.1", "ReLU", True, None, 0, False, "net"),
    ]
    assert found[3].config == {"inplace": False, "no_grad_calls": 5}


def test_weights_before_training() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(64, 9))
    got = facts.initial(weight)
    w = weight.detach().double().numpy()
    assert got["init_mean"] == pytest.approx(w.mean(), abs=1e-6)
    assert got["init_rms"] == pytest.approx(np.sqrt((w**2).mean()), rel=1e-5)
    assert got["init_absmax"] == pytest.approx(np.abs(w).max())
    spread = np.sqrt(((w - w.mean(0)) ** 2).mean()) / np.sqrt((w**2).mean())
    assert got["row_spread"] == pytest.approx(spread, rel=1e-5)
    assert got["fan_in"] == 9


@pytest.mark.parametrize(
    ("value", "spread", "fan_in"),
    [
        (torch.ones(4, 3), 0.0, 3),
        (torch.zeros(4, 3), 0.0, 3),
        (torch.ones(4), None, None),
        (torch.ones(1, 3), None, 3),
        (torch.ones(5, 2, 3, 3), 0.0, 18),
        (torch.ones(()), None, None),
        (torch.ones(0, 3), None, None),
    ],
)
def test_units_that_start_equal(
    value: torch.Tensor, spread: float | None, fan_in: int | None
) -> None:
    got = facts.initial(nn.Parameter(value))
    assert (got["row_spread"], got["fan_in"]) == (spread, fan_in)


def test_settings_of_a_group() -> None:
    weight = nn.Parameter(torch.ones(1))
    (group,) = torch.optim.Adam([weight], lr=torch.tensor(0.5), betas=(0.25, 0.75)).param_groups
    found = facts.group_settings(group)
    assert (found["lr"], found["betas.0"], found["betas.1"]) == (0.5, 0.25, 0.75)
    assert found["fused"] is None
    assert "params" not in found


def test_what_an_optimizer_holds() -> None:
    model, stale = nn.Linear(2, 2), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": [stale]}], lr=0.1)
    fact = facts.optimizer_fact(3, optimizer, {id(p) for p in model.parameters()}, 7)
    assert (fact.index, fact.kind, fact.params, fact.foreign, fact.steps) == (3, "SGD", 3, 1, 7)
    assert len(fact.groups) == 2
    places = [(p is stale, place) for p, place in facts.membership(3, optimizer)]
    assert places == [(False, (3, 0)), (False, (3, 0)), (True, (3, 1))]


def test_names_under_a_prefix() -> None:
    pairs = [("", "a"), ("net", "a"), ("net", ""), ("", "")]
    assert [facts.join(*pair) for pair in pairs] == ["a", "net.a", "net", ""]


def test_mixed_precision_is_noted() -> None:
    assert facts.autocast() == {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert facts.autocast() == {m.N_AUTOCAST: "bfloat16"}


def test_the_device() -> None:
    assert facts.device_of([]) == "cpu"
    assert facts.device_of([torch.ones(1, device="meta")]) == "meta"
