"""Compiled models: one graph with taps and one without, no break, no recompilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.torch.compile import backend_of, is_compiled, own_name, rearm, unwrap
from neuraldbg.torch.monitor import NeuralDbg
from neuraldbg.torch.schedule import Schedule

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]
Counters = dict[str, Any]

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    # Dynamo asks tensors that are no leaves for their gradient, and hides the warning that
    # this brings only where warnings are not errors.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    """More identical blocks than Dynamo would recompile for."""

    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at every other step: the switch is turned on and off all the time."""
    state = {"due": True}

    def turn(_: Schedule) -> bool:
        state["due"] = not state["due"]
        return state["due"]

    monkeypatch.setattr(Schedule, "next_step", turn)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the first step only."""
    monkeypatch.setattr(Schedule, "next_step", lambda _: False)


def train(model: Callable[[Tensor], Tensor], optimizer: Any, steps: int, evaluate: bool) -> None:
    for _ in range(steps):
        if evaluate:
            with torch.no_grad():
                model(torch.randn(8, 4))
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def graphs(counters: Counters) -> int:
    return counters["stats"]["unique_graphs"]


def whole(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="aot_eager", fullgraph=True)


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="aot_eager", fullgraph=True)
    return model


@pytest.mark.usefixtures("alternate")
@pytest.mark.parametrize("evaluate", [False, True], ids=["", "evaluating"])
@pytest.mark.parametrize("compile_", [whole, in_place])
@pytest.mark.parametrize("when", ["before", "after wrapping"])
def test_one_graph_with_taps_and_one_without(
    when: str,
    compile_: Callable[[nn.Module], nn.Module],
    evaluate: bool,
    watch: Watch,
    read: Read,
    fresh_dynamo: Counters,
) -> None:
    model = Net(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if when == "before":
        dbg = watch(model).attach()
        call = compile_(model)
    else:
        call = compile_(model)
        dbg = watch(call).attach()
    train(call, optimizer, 4, evaluate)
    warm = graphs(fresh_dynamo)
    train(call, optimizer, 8, evaluate)
    dbg.close()
    assert warm == graphs(fresh_dynamo) <= (4 if evaluate else 2)
    assert not fresh_dynamo["graph_break"]
    record = read(dbg)
    for metric in (m.ACT_RMS, m.GRAD_RMS):
        series = record.series(Kind.MODULE, "blocks.2.down", metric)
        assert series.steps.tolist() == [0, 2, 4, 6, 8, 10]
    assert record.facts.run.compiled
    assert record.facts.run.backend == "aot_eager"
    assert record.facts.run.notes[m.N_EVAL_FORWARDS] == (12 if evaluate else 0)


@pytest.mark.usefixtures("alternate")
def test_identical_blocks_are_compiled_once(
    watch: Watch, read: Read, fresh_dynamo: Counters
) -> None:
    model = Net()
    for block in model.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model) as dbg:
        train(model, optimizer, 6, evaluate=False)
    assert graphs(fresh_dynamo) == 2
    series = [
        read(dbg).series(Kind.MODULE, f"blocks.{i}.{name}", metric)
        for i in range(12)
        for name in ("up", "down")
        for metric in (m.ACT_RMS, m.GRAD_RMS)
    ]
    assert {len(s) for s in series} == {3}
    assert len({s.values[0] for s in series}) == len(series)  # each its own numbers


def of_torchs_own(depth: int) -> nn.Module:
    """Dynamo does not compile the code of torch's own modules directly."""
    model = nn.Sequential()
    model.stem = nn.Linear(4, 4)
    model.blocks = nn.Sequential(*[Block() for _ in range(depth)])
    return model


@pytest.mark.parametrize("make", [Net, of_torchs_own])
def test_attaching_before_between_and_after_sees_the_same(
    make: Callable[[int], nn.Module], watch: Watch, read: Read
) -> None:
    """Before compiling, after wrapping, after the first compiled call; wrapper or model."""
    records = {}
    for when in ("before", "wrapped", "called", "called, model given", "eager"):
        torch._dynamo.reset()
        torch.manual_seed(5)
        model = make(2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        dbg = watch(model)
        if when in ("before", "eager"):
            dbg.attach()
        call = model if when == "eager" else whole(model)
        if when.startswith("called"):
            call(torch.randn(8, 4)).sum().backward()
            model.zero_grad()
        if when not in ("before", "eager"):
            dbg = watch(model if when.endswith("given") else call).attach()
        torch.manual_seed(6)
        train(call, optimizer, 4, evaluate=False)
        dbg.close()
        records[when] = read(dbg)
    eager = records.pop("eager")
    assert len(eager.series(Kind.MODULE, "blocks.1", m.GRAD_RMS)) == 4
    for when, record in records.items():
        assert record.facts.run.compiled, when
        for channel, series in eager.channels.items():
            # The loss is computed outside; times differ.
            if channel.kind in (Kind.MODULE, Kind.PARAM, Kind.LOSS, Kind.BATCH):
                got = record.channels[channel]
                assert got.steps.tolist() == series.steps.tolist(), (when, channel)
                assert got.values == pytest.approx(series.values, rel=1e-5, abs=1e-7, nan_ok=True)


def test_attaching_late_to_a_compiled_part(watch: Watch, read: Read) -> None:
    model = nn.Module()
    model.body = torch.compile(of_torchs_own(1), backend="aot_eager")
    model.forward = lambda x: model.body(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, 2, evaluate=False)
    with watch(model) as dbg:
        train(model, optimizer, 3, evaluate=False)
    assert len(read(dbg).series(Kind.MODULE, "body.blocks.0.up", m.GRAD_RMS)) == 3


def test_rearming_leaves_other_code_alone(watch: Watch, fresh_dynamo: Counters) -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    other, model = whole(Other()), Net(2)
    call = whole(model)
    call(torch.randn(8, 4))
    other(torch.randn(8, 4))
    before = graphs(fresh_dynamo)
    with watch(call):
        other(torch.randn(8, 4))
        assert graphs(fresh_dynamo) == before
        call(torch.randn(8, 4))
        assert graphs(fresh_dynamo) == before + 1


@pytest.mark.usefixtures("never")
def test_after_closing_the_model_is_compiled_once_more(
    watch: Watch, fresh_dynamo: Counters
) -> None:
    """Dynamo guards on the number of hooks where there are any: the last graph has none."""
    model = Net(2)
    call = whole(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(call):
        train(call, optimizer, 3, evaluate=False)
    assert graphs(fresh_dynamo) == 2
    train(call, optimizer, 3, evaluate=False)
    assert graphs(fresh_dynamo) <= 3


def test_a_step_that_is_not_due_carries_no_taps(
    watch: Watch, never: None, fresh_dynamo: Counters
) -> None:
    """The second graph has as many calls as the model alone."""
    sizes = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        sizes.append(sum(node.op != "placeholder" for node in graph.graph.nodes))
        return graph.forward

    model = Net(2)
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.randn(8, 4))
    torch._dynamo.reset()
    call = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(call):
        train(call, optimizer, 3, evaluate=False)
    alone, with_taps, without = sizes
    assert with_taps > alone + 10
    assert without == alone


class Broken(nn.Module):
    """Cannot be compiled in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


@pytest.mark.usefixtures("never")
def test_our_code_is_not_compiled_between_the_users_graphs(
    watch: Watch, read: Read, fresh_dynamo: Counters
) -> None:
    def count(observed: bool) -> int:
        torch._dynamo.reset()
        fresh_dynamo.clear()
        model = Broken()
        call = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if not observed:
            train(call, optimizer, 3, evaluate=False)
            return graphs(fresh_dynamo)
        with watch(call) as dbg:
            train(call, optimizer, 3, evaluate=False)
        assert len(read(dbg).series(Kind.MODULE, "second", m.GRAD_RMS)) == 1
        return graphs(fresh_dynamo)

    alone = count(observed=False)
    assert alone == 2
    assert count(observed=True) == 2 * alone


def test_a_compiled_training_step(
    watch: Watch, losses: Callable[..., list[float]], fresh_dynamo: Counters
) -> None:
    """Backward, clipping and optimizer step inside a compiled function."""
    model = Net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.compile(backend="aot_eager")
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def run() -> list[float]:
        torch.manual_seed(2)
        return [step(torch.randn(8, 4)).item() for _ in range(4)]

    with watch(model, optimizer) as dbg:
        mine = run()
    assert losses(dbg) == mine


def test_a_function_that_calls_the_model_is_compiled_again_too(
    watch: Watch, read: Read, losses: Callable[..., list[float]]
) -> None:
    model = Net(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    forward = torch.compile(lambda x: model(x), backend="aot_eager")
    train(forward, optimizer, 2, evaluate=False)
    with watch(model, optimizer) as dbg:
        train(forward, optimizer, 2, evaluate=False)
    assert len(losses(dbg)) == 2
    assert dbg.gaps == []
    assert len(read(dbg).series(Kind.MODULE, "blocks.0.up", m.GRAD_RMS)) == 2


@pytest.mark.filterwarnings("ignore:Profiler record function:UserWarning")
def test_a_compiled_optimizer_and_clipping(
    watch: Watch, read: Read, fresh_dynamo: Counters
) -> None:
    def run(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
        torch._dynamo.reset()
        fresh_dynamo.clear()

        @torch.compile(backend="aot_eager", fullgraph=True)
        def clip() -> None:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

        step = torch.compile(optimizer.step, backend="aot_eager")
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            clip()
            step()
        return dict(fresh_dynamo["stats"])

    model = Net(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    alone = run(model, optimizer)
    with watch(model, optimizer) as dbg:
        assert run(model, optimizer) == alone
    record = read(dbg)
    assert record.facts.run.steps == 4
    assert len(record.series(Kind.PARAM, "stem.weight", m.P_RATIO)) == 4


# -- names and wrappers ----------------------------------------------------------------


def test_wrappers_are_looked_through() -> None:
    model = Net(1)
    assert unwrap(torch.compile(model)) is model
    assert unwrap(nn.DataParallel(model)) is model
    assert unwrap(model) is model
    assert own_name("a._orig_mod.b._orig_mod") == "a.b"
    assert own_name("_orig_mod") == ""


def test_what_is_compiled_shows() -> None:
    assert not is_compiled(Net(1))
    assert is_compiled(torch.compile(Net(1)))
    parts = Net(2)
    parts.blocks[1].compile(backend="eager")
    assert is_compiled(parts)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "eager"])
def test_the_backend_is_known(backend: str) -> None:
    assert backend_of(torch.compile(Net(1), backend=backend)) == backend
    assert backend_of(Net(1)) is None


def test_modules_without_python_code_need_no_rearming() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rearm(nn.Sequential(torch.jit.script(nn.Linear(2, 2))))


def test_compiling_a_watched_model_is_noticed(watch: Watch, read: Read) -> None:
    def named(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        return graph.forward

    for compile_ in (
        lambda x: x.compile(backend=named),
        lambda x: torch.compile(x, backend=named),
        lambda x: torch.compile(x.forward, backend=named),
        lambda x: x.blocks[0].compile(backend=named),
    ):
        model = Net(1)
        with watch(model) as dbg:
            compile_(model)
        assert read(dbg).facts.run.compiled
        assert read(dbg).facts.run.backend == "named"
    with watch(model := Net(1)) as dbg:
        torch.compile(model, disable=True)
        torch.compile(nn.Linear(1, 1), backend="eager")
    assert not read(dbg).facts.run.compiled
