"""Gradients of module outputs that are views and are changed in place later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.torch.monitor import NeuralDbg

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]


class Cut(nn.Module):
    """Returns a view of what it computes, chosen by the test."""

    def __init__(self, cut: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.cut = nn.Linear(4, 8), cut

    def forward(self, x: Tensor) -> Tensor:
        return self.cut(self.linear(x))


class Net(nn.Module):
    def __init__(self, cut: Callable[[Tensor], Tensor], change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.part, self.change, self.head = Cut(cut), change, nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.change(self.part(x)).flatten(1))


CUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "columns": lambda x: x[:, 2:6],
    "every other": lambda x: x[:, ::2],
    "transposed": lambda x: x.view(-1, 2, 4).transpose(1, 2),
    "all": lambda x: x.view(-1, 8),
}


def readings(net: Net, watch: Watch, read: Read) -> list[list[float]]:
    net(torch.ones(3, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(4)
    with watch(net, optimizer) as dbg:
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.randn(3, 4, generator=generator)).square().sum().backward()
            optimizer.step()
    metrics = (m.GRAD_RMS, m.GRAD_MEAN, m.GRAD_ABSMAX)
    return [read(dbg).series(Kind.MODULE, "part", x).values.tolist() for x in metrics]


@pytest.mark.parametrize("cut", CUTS)
def test_the_gradient_is_that_of_a_copy(cut: str, watch: Watch, read: Read) -> None:
    """The oracle changes a copy, so that nothing is rewritten."""

    def with_(change: Callable[[Tensor], Tensor]) -> Net:
        torch.manual_seed(1)
        return Net(CUTS[cut], change)

    wanted = readings(with_(lambda x: x.clone().mul_(3.0).relu_()), watch, read)
    assert len(wanted[0]) == 2
    found = readings(with_(lambda x: x.mul_(3.0).relu_()), watch, read)
    assert found == [pytest.approx(series, rel=1e-6) for series in wanted]


@pytest.mark.parametrize("leaf", [False, True])
def test_in_compiled_code_it_is_a_gap(leaf: bool, watch: Watch, fresh_dynamo: Any) -> None:
    """A module that returns a view, and one that has nothing but the view."""
    part = nn.Sequential(nn.Linear(4, 8), nn.Unflatten(1, (2, 4))) if leaf else Cut(CUTS["all"])
    net = nn.Sequential(part, nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    call = torch.compile(net, backend="aot_eager", fullgraph=True)
    with watch(net, optimizer) as dbg:
        call(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
    (gap,) = dbg.gaps
    assert gap.what == ("modules 0.1" if leaf else "modules 0")
    assert "no gradient came back" in gap.why


def test_a_view_that_is_not_changed_is_read_once(watch: Watch, read: Read) -> None:
    torch.manual_seed(1)
    wanted = readings(Net(lambda x: x[:, :4] + 0, lambda x: 3 * x), watch, read)
    torch.manual_seed(1)
    assert readings(Net(lambda x: x[:, :4], lambda x: 3 * x), watch, read) == wanted


def test_a_view_that_nobody_uses_has_no_gradient(watch: Watch, read: Read) -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.flat = nn.Linear(4, 4), nn.Flatten(0)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            self.flat(x)
            return x

    net = Unused()
    with watch(net) as dbg:
        net(torch.ones(2, 4)).sum().backward()
    assert len(read(dbg).series(Kind.MODULE, "flat", m.ACT_RMS)) == 1
    assert len(read(dbg).series(Kind.MODULE, "flat", m.GRAD_RMS)) == 0
