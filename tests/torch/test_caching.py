"""Inductor's caches: graphs with taps are taken, and what comes from there reads the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.config as settings
from torch import nn

from neuraldbg.core.record import Record
from neuraldbg.torch import loop
from neuraldbg.torch.caching import OPERATOR, SETTING, mark_cacheable
from neuraldbg.torch.monitor import NeuralDbg
from neuraldbg.torch.schedule import Schedule

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]
Train = Callable[..., list[float]]


def marked() -> dict[str, str]:
    return dict(getattr(settings, SETTING))


@pytest.fixture
def _twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the first two steps."""
    monkeypatch.setattr(Schedule, "next_step", lambda self: self.looks < 2)


def products() -> nn.Sequential:
    """Nothing but matrix products, for which Inductor generates no C++ code."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False))


@pytest.mark.compile
@pytest.mark.usefixtures("_twice")
def test_a_second_compilation_comes_from_the_cache(
    watch: Watch, read: Read, train: Train, fresh_dynamo: dict[str, Any]
) -> None:
    from torch._inductor.utils import fresh_cache

    records = []
    with fresh_cache():
        for _ in range(2):
            torch._dynamo.reset()
            fresh_dynamo.clear()
            model = products()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            torch.manual_seed(5)
            # The slots of the second monitor have other numbers.
            with watch(model, optimizer) as dbg:
                train(torch.compile(model, fullgraph=True), optimizer, 4)
            records.append(read(dbg))
    # With taps and without, forward and backward.
    assert fresh_dynamo["inductor"]["fxgraph_cache_hit"] == 4
    assert fresh_dynamo["aot_autograd"]["autograd_cache_hit"] == 2
    first, second = (
        {channel: series.values.tolist() for channel, series in record.channels.items()}
        for record in records
    )
    assert first.keys() == second.keys()
    modules = [channel for channel in first if channel.kind.value == "module"]
    assert len(modules) > 30
    assert {c: first[c] for c in modules} == {c: second[c] for c in modules}


@pytest.mark.usefixtures("_twice")
def test_marked_only_while_a_look_is_due(
    watch: Watch, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    told = loop.Watch._backward

    def spy(self: loop.Watch, tensors: list[torch.Tensor]) -> None:
        seen.append((self.due, OPERATOR in marked()))
        told(self, tensors)

    monkeypatch.setattr(loop.Watch, "_backward", spy)
    before = marked()
    model = products()
    with watch(model):
        train(model, torch.optim.SGD(model.parameters(), lr=0.01), 4)
    assert seen == [(True, True), (True, True), (False, False), (False, False)]
    assert marked() == before


def test_what_the_user_has_marked_stays() -> None:
    theirs = {"torch.ops.theirs": "1", OPERATOR: "2"}
    with settings.patch(SETTING, theirs):
        for on in (True, False):
            mark_cacheable(on)
            assert marked() == theirs
    with settings.patch(SETTING, {"torch.ops.theirs": "1"}):
        mark_cacheable(True)
        assert marked() == {"torch.ops.theirs": "1", OPERATOR: torch.__version__}
        mark_cacheable(False)
        assert marked() == {"torch.ops.theirs": "1"}


def test_other_releases_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    before = marked()
    mark_cacheable(True)
    assert marked() == before
