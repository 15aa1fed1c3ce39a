"""However a model is compiled and whenever a monitor comes: the same training and readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from neuraldbg.core import metrics as m
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.store.reader import load_record
from neuraldbg.torch.monitor import NeuralDbg

from .models import Saved, loss_of
from .patterns import Breaks

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
STEPS = 3
Lossy = Callable[[Tensor], Tensor]
Way = Callable[..., Lossy]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def eager(model: nn.Module, **options: Any) -> Lossy:
    return lambda x: loss_of(model(x))


def wrapped(model: nn.Module, **options: Any) -> Lossy:
    call = torch.compile(model, fullgraph=True, **options)
    return lambda x: loss_of(call(x))


def in_place(model: nn.Module, **options: Any) -> Lossy:
    model.compile(fullgraph=True, **options)
    return lambda x: loss_of(model(x))


def forward(model: nn.Module, **options: Any) -> Lossy:
    model.forward = torch.compile(model.forward, fullgraph=True, **options)
    return lambda x: loss_of(model(x))


def blocks(model: nn.Module, **options: Any) -> Lossy:
    for block in model.blocks:
        block.compile(fullgraph=True, **options)
    return lambda x: loss_of(model(x))


def part(model: nn.Module, **options: Any) -> Lossy:
    model.blocks[0] = torch.compile(model.blocks[0], fullgraph=True, **options)
    return lambda x: loss_of(model(x))


def with_loss(model: nn.Module, **options: Any) -> Lossy:
    """A function that calls the model and computes the loss."""

    def forward(x: Tensor) -> Tensor:
        return loss_of(model(x))

    return torch.compile(forward, fullgraph=True, **options)


def in_pieces(model: nn.Module, **options: Any) -> Lossy:
    call = torch.compile(model, **options)
    return lambda x: loss_of(call(x))


WAYS = {f.__name__: f for f in (wrapped, in_place, forward, blocks, part, with_loss)}


def train(lossy: Lossy, model: nn.Module, steps: int = STEPS, size: int = 8) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = lossy(torch.randn(size + step, 6))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def build(make: Callable[[], nn.Module] = Saved) -> nn.Module:
    torch.manual_seed(3)
    return make()


@pytest.fixture
def monitor(tmp_path: Path) -> Callable[[nn.Module], NeuralDbg]:
    runs = iter(range(9))

    def attach(model: nn.Module) -> NeuralDbg:
        path = tmp_path / f"{next(runs)}.ndbg"
        return NeuralDbg(model, budget=float("inf"), strict=True, out=path).attach()

    return attach


Monitor = Callable[[nn.Module], NeuralDbg]


def seen(dbg: NeuralDbg) -> Record:
    """What a monitor without any gap has recorded."""
    dbg.close()
    assert dbg.path is not None
    assert dbg.gaps == []
    return load_record(dbg.path)


def same(record: Record, other: Record, near: float = 1e-5) -> None:
    """Every reading of a module, a parameter and the loss is in both, and equal."""
    compared = 0
    for channel, series in other.channels.items():
        if channel.kind in (Kind.MODULE, Kind.PARAM, Kind.LOSS) and channel.name != "prediction":
            got = record.channels[channel]
            assert got.steps.tolist() == series.steps.tolist(), channel
            assert got.values == pytest.approx(series.values, rel=near, abs=near, nan_ok=True)
            compared += 1
    assert compared > 100


def before(way: Way, make: Any, monitor: Monitor) -> tuple[Record, list[Tensor]]:
    model = build(make)
    dbg = monitor(model)
    losses = train(way(model, backend="aot_eager"), model)
    return seen(dbg), losses


def between(way: Way, make: Any, monitor: Monitor) -> tuple[Record, list[Tensor]]:
    model = build(make)
    lossy = way(model, backend="aot_eager")
    dbg = monitor(model)
    losses = train(lossy, model)
    return seen(dbg), losses


def after(way: Way, make: Any, monitor: Monitor) -> tuple[Record, list[Tensor]]:
    """Compiled, called, and only then put under watch."""
    model = build(make)
    lossy = way(model, backend="aot_eager")
    start = {n: t.clone() for n, t in model.state_dict().items()}
    train(lossy, model, 2)
    model.load_state_dict(start)
    model.zero_grad()
    dbg = monitor(model)
    losses = train(lossy, model)
    return seen(dbg), losses


def again(way: Way, make: Any, monitor: Monitor) -> tuple[Record, list[Tensor]]:
    """Under watch, without, and under watch by another monitor."""
    model = build(make)
    lossy = way(model, backend="aot_eager")
    start = {n: t.clone() for n, t in model.state_dict().items()}
    dbg = monitor(model)
    train(lossy, model, 2)
    seen(dbg)
    train(lossy, model, 2)
    model.load_state_dict(start)
    model.zero_grad()
    dbg = monitor(model)
    losses = train(lossy, model)
    return seen(dbg), losses


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Record]:
    """What is read in eager mode, where the statistics are compared with ordinary hooks."""
    known: dict[Any, Record] = {}

    def record(make: Any) -> Record:
        if make not in known:
            out = tmp_path_factory.mktemp("eager") / "eager.ndbg"
            model = build(make)
            with NeuralDbg(model, budget=float("inf"), strict=True, out=out):
                train(eager(model), model)
            known[make] = load_record(out)
        return known[make]

    return record


@pytest.fixture(scope="module")
def alone() -> Callable[[str], Tensor]:
    """The losses without a monitor."""
    known: dict[str, Tensor] = {}

    def losses(way: str) -> Tensor:
        if way not in known:
            model = build()
            known[way] = torch.stack(train(WAYS[way](model, backend="aot_eager"), model))
            torch._dynamo.reset()
            counters.clear()
        return known[way]

    return losses


@pytest.mark.parametrize("when", [before, between, after, again], ids=lambda f: f.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_however_and_whenever(
    way: str,
    when: Callable[..., Any],
    monitor: Monitor,
    alone: Callable[[str], Tensor],
    expected: Callable[[Any], Record],
) -> None:
    wanted = alone(way)
    record, losses = when(WAYS[way], Saved, monitor)
    assert torch.equal(torch.stack(losses), wanted)
    same(record, expected(Saved))
    assert record.facts.run.compiled
    assert not counters["graph_break"]


@pytest.mark.parametrize("when", [before, between, after, again], ids=lambda f: f.__name__)
def test_a_model_in_pieces_whenever(
    when: Callable[..., Any], monitor: Monitor, expected: Callable[[Any], Record]
) -> None:
    """Also what follows a graph break is compiled again."""
    record, _ = when(in_pieces, Breaks, monitor)
    same(record, expected(Breaks))


def test_one_of_two_models_of_a_class(monitor: Monitor) -> None:
    """The other one keeps its graph, and nothing of it is recorded."""
    mine, other = build(), build()
    calls = [torch.compile(x, backend="aot_eager", fullgraph=True) for x in (mine, other)]
    lossy = [lambda x, call=call: loss_of(call(x)) for call in calls]
    dbg = monitor(mine)
    watched = train(lossy[0], mine)
    alone = train(lossy[1], other)
    assert torch.equal(torch.stack(watched), torch.stack(alone))
    record = seen(dbg)
    assert len(record.series(Kind.MODULE, "blocks.1.up", m.GRAD_RMS)) == STEPS
    assert record.facts.run.steps == STEPS


@pytest.mark.parametrize("way", ["wrapped", "blocks"])
def test_any_size_of_batch(way: str, monitor: Monitor, expected: Callable[[Any], Record]) -> None:
    model = build()
    dbg = monitor(model)
    train(WAYS[way](model, backend="aot_eager", dynamic=True), model)
    same(seen(dbg), expected(Saved))
    # One graph serves every size; the blocks share theirs.
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_by_inductor(mode: str, monitor: Monitor, expected: Callable[[Any], Record]) -> None:
    model = build()
    dbg = monitor(model)
    train(WAYS["wrapped"](model, backend="inductor", mode=mode), model)
    same(seen(dbg), expected(Saved), 1e-4)


# -- faults ----------------------------------------------------------------------------


class Dying(nn.Module):
    """Biases that a large learning rate drives below zero, so that units die."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Saturated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(part for _ in range(5) for part in (nn.Linear(6, 6), nn.Sigmoid())), nn.Linear(6, 1)
        )
        with torch.no_grad():
            for layer in self.layers[:-1:2]:
                layer.weight.mul_(20)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Roots(nn.Module):
    """Takes the root of what becomes negative."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).exp().sub(0.05).sqrt())


def events(model: nn.Module, call: Any, rate: float, dbg: NeuralDbg) -> tuple[SemanticEvent, ...]:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(25):
        torch.manual_seed(step)
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (call(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    dbg.close()
    return dbg.events


@pytest.mark.parametrize(
    ("make", "rate"), [(Dying, 1.0), (Saturated, 0.01), (Roots, 0.5)], ids=lambda x: str(x)
)
def test_faults_are_the_same_events(
    make: Callable[[], nn.Module], rate: float, monitor: Monitor
) -> None:
    found = []
    for compiled in (False, True):
        model = build(make)
        dbg = monitor(model)
        call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        found.append([(e.kind, e.where, e.step, e.before, e.after)
                      for e in events(model, call, rate, dbg)])  # fmt: skip
    assert found[0] == found[1]
    assert found[0]
