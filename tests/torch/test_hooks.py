"""Which boundaries are watched, and that every handle goes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.hooks import Hooks, boundaries, in_backward, recomputes
from neuraldbg.torch.monitor import NeuralDbg

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]


def axes(model: nn.Module) -> dict[str, int | None]:
    return {b.name: b.axis for b in boundaries(model)}


def test_units_follow_the_last_layer_that_has_them() -> None:
    model = nn.Sequential(
        nn.ReLU(),
        nn.Conv1d(1, 1, 1),
        nn.ReLU(),
        nn.Linear(1, 1),
        nn.Sequential(nn.GELU(), nn.GroupNorm(1, 1), nn.Dropout()),
        nn.LayerNorm(1),
        nn.Tanh(),
    )
    assert axes(model) == {
        "0": -1,
        "1": 1,
        "2": 1,
        "3": -1,
        "4.0": -1,
        "4.1": 1,
        "4.2": 1,
        "5": -1,
        "6": -1,
    }


def test_what_is_not_watched() -> None:
    model = nn.Module()
    model.stack = nn.ModuleDict({"a": nn.Linear(1, 1)})
    model.mix = nn.MultiheadAttention(4, 2)
    model.values = nn.ParameterDict({"w": nn.Parameter(torch.ones(1))})
    model.normed = parametrizations.weight_norm(nn.Linear(1, 1))
    model.compiled = torch.compile(nn.Linear(1, 1), backend="eager")
    model.rnn = nn.LSTM(1, 1)
    assert axes(model) == {
        "": None,
        "stack.a": -1,
        "mix": -1,
        "normed": -1,
        "compiled._orig_mod": -1,
        "rnn": -1,
    }


def test_flat_regions_and_inputs() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Sigmoid(), nn.Tanh(), nn.Hardtanh(), nn.GRU(1, 1))
    found = list(boundaries(model))
    assert [b.flat for b in found] == [None, "sigmoid", "tanh", None, None]
    assert [b.reads_input for b in found] == [True, False, False, False, True]


def test_a_module_costs_at_most_two_kib_once_attached() -> None:
    def held(modules: int) -> int:
        model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(modules)))
        gc.collect()
        tracemalloc.start()
        hooks = Hooks(model, Faults(strict=True), lambda *_: None, lambda _: None)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        hooks.close()
        return size

    held(1)  # pays for imports
    assert held(400) - held(200) <= 200 * 2048


def test_closing_removes_every_hook() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hooks = Hooks(model, Faults(strict=True), lambda *_: None, lambda _: None)
    assert sum(len(x._forward_hooks) for x in model.modules()) == 3
    assert len(model._forward_pre_hooks) == 1
    for _ in range(2):
        hooks.close()
    assert all(
        not (x._forward_hooks or x._forward_pre_hooks or x._forward_pre_hooks_with_kwargs)
        for x in model.modules()
    )


def test_a_failure_half_way_leaves_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def fail(*_: Any, **__: Any) -> None:
        message = "no hooks here"
        raise RuntimeError(message)

    monkeypatch.setattr(model[1], "register_forward_hook", fail)
    with pytest.raises(RuntimeError, match="no hooks here"):
        Hooks(model, Faults(), lambda *_: None, lambda _: None)
    assert not model[0]._forward_hooks


def test_where_a_backward_pass_runs() -> None:
    seen: dict[str, Any] = {}

    def note(name: str) -> Callable[[Tensor], Tensor]:
        def function(x: Tensor) -> Tensor:
            seen.setdefault(name, []).append(
                (torch.is_grad_enabled(), in_backward(), recomputes(seen=True))
            )
            return x.sin()

        return function

    x = torch.ones(1, requires_grad=True)
    note("plain")(x).backward()
    checkpoint(note("reentrant"), x, use_reentrant=True).backward()
    checkpoint(note("newer"), x, use_reentrant=False).backward()
    assert seen == {
        "plain": [(True, False, False)],
        "reentrant": [(False, False, False), (True, True, False)],
        "newer": [(True, False, False), (True, True, True)],
    }


def test_the_first_look_counts_calls_and_order(watch: Watch, read: Read) -> None:
    model = nn.Module()
    model.last, model.first = nn.Linear(2, 2), nn.Linear(2, 2)
    model.forward = lambda x: model.last(model.first(model.first(x)))
    with watch(model) as dbg:
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
    facts = {f.name: f for f in read(dbg).facts.modules}
    assert {n: f.calls for n, f in facts.items()} == {"": 1, "first": 2, "last": 1}
    assert facts["first"].order < facts["last"].order < facts[""].order


def test_a_shared_module_is_one(watch: Watch, read: Read) -> None:
    act = nn.ReLU()
    model = nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act)
    with watch(model) as dbg:
        model(torch.ones(1, 4)).sum().backward()
    assert {c.name for c in read(dbg).channels if c.kind == Kind.MODULE} == {"0", "1", "2"}


def test_tiny_and_huge_values(watch: Watch, read: Read) -> None:
    """Squares leave single precision long before the values do."""
    model = nn.Module()
    model.scale = nn.Parameter(torch.ones(()))
    model.forward = lambda x: model.scale * x
    values = [1e-30, 1e-25, 1e25, 3.0]
    with watch(model) as dbg:
        for value in values:
            (model(torch.full((8,), value)) * value).sum().backward()
    record = read(dbg)
    for metric in (m.ACT_RMS, m.ACT_ABSMAX, m.GRAD_RMS):
        assert record.series(Kind.MODULE, "", metric).values == pytest.approx(values, rel=1e-5)
