"""Wider hidden layers: the same function at first, and one that learns more."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from neuraldbg.experiments.interventions import interventions_for
from neuraldbg.experiments.judge import Pair, Trials
from neuraldbg.experiments.outcome import Scope
from neuraldbg.torch.interventions.capacity import WIDTH
from neuraldbg.torch.notebook import Bench


def mlp(width: int = 2) -> nn.Sequential:
    """Two narrow hidden layers."""
    return nn.Sequential(
        nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)
    )


def cnn() -> nn.Sequential:
    """Convolutions with everything that may stand between."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU(4), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, bias=False), nn.BatchNorm2d(5, affine=False), nn.PReLU(),
        nn.Flatten(), nn.Linear(5 * 9, 2),
    )  # fmt: skip


def names(model: nn.Module) -> list[str]:
    """As the run file lists them, containers among them."""
    return [name for name, _ in model.named_modules() if name]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("make", "shape"), [(mlp, (7, 6)), (cnn, (7, 3, 12, 12))])
def test_it_computes_the_same_and_then_learns_in_all_its_units(
    make, shape: tuple[int, ...], compiled: bool, act
) -> None:
    model = make()
    action = act("widen", called=names(model))
    x = torch.randn(shape)
    with torch.no_grad():
        wanted = model.eval()(x)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    held = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    run = torch.compile(model, backend="aot_eager") if compiled else model
    assert action.applied == 2
    assert torch.allclose(run(x), wanted, atol=1e-6)
    model.train()
    assert held == sum(p.numel() for p in model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(3):
        optimizer.zero_grad()
        run(x).square().sum().backward()
        optimizer.step()
    moved = [(a != b).float().mean() for a, b in zip(before, model.parameters(), strict=True)]
    assert min(moved) > 0.5


def test_the_layers_say_their_new_size(act) -> None:
    model = mlp()
    act("widen", called=names(model))
    torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = [(x.in_features, x.out_features) for x in model if isinstance(x, nn.Linear)]
    assert sizes == [(6, WIDTH), (WIDTH, WIDTH), (WIDTH, 3)]


def test_only_what_is_about_as_narrow_as_the_narrowest_is_widened(act) -> None:
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 2), nn.Linear(2, 32),
                          nn.ReLU(), nn.Linear(32, 9))  # fmt: skip
    act("widen", called=names(model))
    torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = [x.out_features for x in model if isinstance(x, nn.Linear)]
    assert outputs == [32, WIDTH, 32, 9]


def test_the_scripts_random_numbers_stay_where_they_were(act) -> None:
    model = mlp()
    act("widen", called=names(model))
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    torch.optim.SGD(model.parameters(), lr=0.1)
    assert torch.equal(torch.rand(1), wanted)


def test_an_optimizer_that_stores_at_once_goes_on(act) -> None:
    model = mlp()
    action = act("widen", called=names(model))
    optimizer = torch.optim.Adagrad(model.parameters(), initial_accumulator_value=0.25)
    model(torch.randn(4, 6)).sum().backward()
    optimizer.step()
    assert action.applied == 2
    assert float(optimizer.state[model[0].weight]["sum"].min()) >= 0.25


def tied() -> nn.Module:
    """The same weight at two places."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    "model",
    [
        mlp(64),  # wide enough
        nn.Sequential(nn.Linear(6, 3)),  # nothing is hidden
        nn.Sequential(nn.Linear(6, 2), nn.LayerNorm(2), nn.Linear(2, 3)),
        nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 3, groups=2)),
        nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 3)),
        nn.Sequential(nn.Linear(6, 4), nn.GLU(), nn.Linear(2, 3)),
        tied(),
    ],
    ids=["wide", "one layer", "LayerNorm", "groups", "embedding", "GLU", "tied"],
)
def test_what_cannot_be_widened_is_left_alone(model: nn.Module, act) -> None:
    action = act("widen", called=names(model))
    before = [p.shape for p in model.parameters()]
    torch.optim.SGD(model.parameters(), lr=0.1)
    assert action.applied == 0
    assert [p.shape for p in model.parameters()] == before


@pytest.mark.parametrize(
    ("rate", "result"), [(0.03, "confirmed"), (1e-7, "refuted")], ids=["narrow", "tiny rate"]
)
def test_width_is_the_cure_only_where_it_is_the_cause(rate: float, result: str) -> None:
    """Parity of four bits by two units; with a rate that moves nothing, 64 units fail alike."""
    bits = torch.tensor([[i >> k & 1 for k in range(4)] for i in range(16)]) * 2.0 - 1
    parity = (bits > 0).sum(1, keepdim=True).remainder(2).float()

    def train() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(200):
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(model(bits), parity).backward()
            optimizer.step()

    bench = Bench(train, Scope(199), seconds=60)
    (widen,) = interventions_for("insufficient_capacity")
    trials = Trials(widen)
    for seed in (0, 1):
        pair = bench.trial(None, seed), bench.trial(widen, seed, {"called": ["0", "1", "2"]})
        assert pair[1].status.applied == 1
        assert pair[0].outcome is not None
        assert pair[1].outcome is not None
        trials.pairs.append(Pair(pair[0].outcome, pair[1].outcome))
    assert trials.result == result
    assert trials.pairs[0].changed.last != trials.pairs[1].changed.last  # another seed, really
