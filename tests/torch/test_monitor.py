"""`NeuralDbg` from its making to its end: nothing is left behind, and nothing breaks."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import neuraldbg
from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.errors import RunFileError, UsageError
from neuraldbg.store.reader import load_record
from neuraldbg.torch import boundaries
from neuraldbg.torch.monitor import NeuralDbg

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]
Train = Callable[..., list[float]]


def hooks_of(model: nn.Module) -> list[dict[str, Any]]:
    """Everything that modules and parameters hold, apart from their values."""
    return [
        {k: dict(v) if isinstance(v, dict) else v for k, v in vars(x).items()}
        for x in model.modules()
    ] + [{"hooks": p._backward_hooks, "attributes": dict(vars(p))} for p in model.parameters()]


# -- life ----------------------------------------------------------------------------


def test_leaving_takes_everything_away(mlp: nn.Module, watch: Watch, train: Train) -> None:
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    train(mlp, optimizer)
    optimizer.zero_grad()
    before = hooks_of(mlp), dict(vars(optimizer))
    with watch(mlp, optimizer):
        assert hooks_of(mlp) != before[0]
        assert len(boundaries.LISTENERS) == 1
        train(mlp, optimizer)
    optimizer.zero_grad()
    assert (hooks_of(mlp), dict(vars(optimizer))) == before


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_of_the_user_ends_the_watch_and_goes_on(
    kind: type[BaseException], mlp: nn.Module, watch: Watch, read: Read, train: Train
) -> None:
    dbg = watch(mlp)

    def fail() -> None:
        with dbg:
            train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
            raise kind("theirs")  # noqa: EM101

    with pytest.raises(kind, match="theirs"):
        fail()
    run = read(dbg).facts.run
    assert run.finished == ("exception" if kind is ValueError else "interrupted")
    assert run.notes[m.N_EXCEPTION] == f"{kind.__name__}: theirs"
    assert run.steps == 3


def test_attaching_twice_is_an_error(mlp: nn.Module, watch: Watch) -> None:
    dbg = watch(mlp)
    with dbg, pytest.raises(UsageError, match="already in use"):
        dbg.attach()
    with pytest.raises(UsageError, match="already in use"):
        dbg.attach()


def test_closing_twice_is_fine(mlp: nn.Module, watch: Watch, read: Read, train: Train) -> None:
    dbg = watch(mlp).attach()
    train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
    dbg.close()
    dbg.close("exception")
    assert read(dbg).facts.run.finished == "ok"
    never = watch(mlp)
    never.close()
    assert never.path is None


def test_monitors_in_sequence(mlp: nn.Module, watch: Watch, read: Read, train: Train) -> None:
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    records = []
    for _ in range(2):
        with watch(mlp, optimizer) as dbg:
            train(mlp, optimizer)
        records.append(read(dbg))
    assert records[0].channels.keys() == records[1].channels.keys()
    assert len({r.facts.run.id for r in records}) == 2


def test_two_monitors_on_one_model(mlp: nn.Module, watch: Watch, read: Read, train: Train) -> None:
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    with watch(mlp, optimizer) as outer:
        train(mlp, optimizer, 2)
        with watch(mlp, optimizer) as inner:
            train(mlp, optimizer, 3)
        train(mlp, optimizer, 2)
    seen = {d: read(d).series(Kind.MODULE, "0", m.ACT_RMS) for d in (outer, inner)}
    assert (len(seen[outer]), len(seen[inner])) == (7, 3)
    assert seen[outer].values[2:5].tolist() == seen[inner].values.tolist()


def test_the_writer_has_ended(mlp: nn.Module, watch: Watch, train: Train) -> None:
    threads = threading.active_count()
    with watch(mlp) as dbg:
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert [f.name for f in dbg.path.parent.iterdir()] == [dbg.path.name]


def test_the_model_is_held_weakly(watch: Watch, read: Read, train: Train) -> None:
    def life() -> tuple[NeuralDbg, weakref.ref[nn.Module], weakref.ref[torch.Tensor]]:
        model = nn.Sequential(nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        dbg = watch(model, optimizer).attach()
        train(model, optimizer)
        return dbg, weakref.ref(model), weakref.ref(model[0].weight)

    dbg, model, weight = life()
    gc.collect()
    assert model() is weight() is None
    dbg.close()
    # What was known of it stays.
    assert {p.name for p in read(dbg).facts.params} == {"0.weight", "0.bias"}


def test_without_an_optimizer_the_parameters_are_held_weakly(watch: Watch, train: Train) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    with watch(model):
        train(model, None)
        weight = weakref.ref(model[0].weight)
        del model
        gc.collect()
        assert weight() is None


def test_a_closed_monitor_keeps_nothing_alive(watch: Watch, train: Train) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    compiled = torch.compile(model, backend="eager")
    with watch(compiled) as dbg:
        train(compiled, torch.optim.SGD(model.parameters(), lr=0.1))
    ref = weakref.ref(model)
    del model, compiled
    torch._dynamo.reset()
    gc.collect()
    assert ref() is None
    assert "Optimized" in repr(dbg)


# -- arguments -----------------------------------------------------------------------


@pytest.mark.parametrize("model", [None, 3, torch.ones(1), nn.Linear, lambda x: x])
def test_only_modules_can_be_watched(model: Any) -> None:
    with pytest.raises(UsageError, match=r"torch\.nn\.Module"):
        NeuralDbg(model)


@pytest.mark.parametrize("budget", [-0.1, float("nan")])
def test_a_budget_is_a_share(budget: float, mlp: nn.Module) -> None:
    with pytest.raises(UsageError, match="budget"):
        NeuralDbg(mlp, budget=budget)


def test_a_path_that_cannot_be_written_is_an_error(mlp: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = hooks_of(mlp)
    with pytest.raises(RunFileError):
        NeuralDbg(mlp, out=tmp_path / "file" / "run.ndbg").attach()
    assert hooks_of(mlp) == before


def test_a_folder_that_cannot_be_written_is_a_gap(
    mlp: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Train
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEURALDBG_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with NeuralDbg(mlp) as dbg:
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
    assert dbg.path.parent == tmp_path
    assert [gap.what for gap in dbg.gaps] == ["the folder of runs"]
    assert load_record(dbg.path).facts.gaps == tuple(dbg.gaps)


def test_what_is_asked_too_early(mlp: nn.Module) -> None:
    dbg = NeuralDbg(mlp)
    assert (dbg.step, dbg.path, dbg.gaps) == (0, None, [])
    assert repr(dbg) == "NeuralDbg(Sequential, idle)"
    with pytest.raises(UsageError, match="Nothing was watched yet"):
        dbg.diagnosis()


def test_what_can_be_asked_while_training(mlp: nn.Module, watch: Watch, train: Train) -> None:
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    with watch(mlp, optimizer) as dbg:
        train(mlp, optimizer, 5)
        found = dbg.diagnosis()
        assert found.facts.run.finished is None
        assert repr(dbg) == "NeuralDbg(Sequential, step 5)"
        train(mlp, optimizer, 5)
    found = dbg.diagnosis()
    assert isinstance(found, Diagnosis)
    assert found.facts.run.steps == 10
    assert dbg.explain_failure() == str(found)
    assert dbg.get_causal_hypotheses() == list(found.hypotheses)
    assert dbg.detect_coupled_failures() == list(found.couplings)
    assert dbg.events == found.events
    assert dbg.export_mermaid_causal_graph().startswith("flowchart")
    assert dbg._repr_html_() == found._repr_html_()
    assert neuraldbg.load(dbg.path).diagnosis() == found


def test_a_failure_is_traced_to_its_root(mlp: nn.Module, watch: Watch) -> None:
    """The optimizer of another model: one hypothesis, asked for in several ways."""
    optimizer = torch.optim.SGD(copy.deepcopy(mlp).parameters(), lr=0.1)
    with watch(mlp, optimizer) as dbg:
        for _ in range(60):
            mlp.zero_grad()
            mlp(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    causes = [h.cause for h in dbg.get_causal_hypotheses()]
    assert causes == ["params_not_optimized"]
    assert "params_not_optimized" in dbg.explain_failure("not optimized")
    assert "params_not_optimized" not in dbg.explain_failure("exploding")


# -- models of all kinds ---------------------------------------------------------------


def test_copies_of_a_watched_model_are_their_own(
    mlp: nn.Module, watch: Watch, read: Read, train: Train
) -> None:
    with watch(mlp) as dbg:
        twin = copy.deepcopy(mlp)
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 2)
        train(twin, torch.optim.SGD(twin.parameters(), lr=0.1), 5)
    assert len(read(dbg).series(Kind.MODULE, "0", m.ACT_RMS)) == 2
    train(twin, None)


def test_saving_and_loading(mlp: nn.Module, watch: Watch, train: Train, tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    plain = mlp.state_dict()
    with watch(mlp):
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
        assert mlp.state_dict().keys() == plain.keys()
        buffer = io.BytesIO()
        torch.save(mlp, buffer)
        torch.save(mlp, tmp_path / "model.pt")
        torch.save(mlp.state_dict(), tmp_path / "state.pt")
        pickled = pickle.dumps(mlp)
        expected = mlp(x)
    buffer.seek(0)
    for again in (torch.load(buffer, weights_only=False), pickle.loads(pickled)):  # noqa: S301
        assert torch.equal(again(x), expected)
        train(again, torch.optim.SGD(again.parameters(), lr=0.1))
    fresh = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    fresh.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(fresh(x), expected)


ELSEWHERE = """
import sys
class Hide:
    def find_spec(self, name, *args):
        if name.partition(".")[0] == "neuraldbg":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
import torch
model = torch.load(sys.argv[1], weights_only=False)
model(torch.ones(2, 4)).sum().backward()
with torch.no_grad():
    model(torch.ones(2, 4))
assert not any(name.startswith("neuraldbg") for name in sys.modules)
print(float(model(torch.ones(1, 4)).sum().detach()))
"""


def test_loading_where_neuraldbg_is_not_installed(
    mlp: nn.Module, watch: Watch, train: Train, tmp_path: Path
) -> None:
    with watch(mlp):
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
        torch.save(mlp, tmp_path / "model.pt")
    expected = float(mlp(torch.ones(1, 4)).sum().detach())
    command = [sys.executable, "-W", "error", "-c", ELSEWHERE, str(tmp_path / "model.pt")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) == pytest.approx(expected)


def gaps(dbg: NeuralDbg) -> dict[str, str]:
    return {gap.what: gap.why for gap in dbg.gaps}


def test_a_model_without_parameters(watch: Watch) -> None:
    with watch(nn.Sequential(nn.ReLU())) as dbg:
        pass
    assert "nothing to train" in gaps(dbg)["parameters"]


def test_a_model_that_is_never_called(mlp: nn.Module, watch: Watch) -> None:
    with watch(mlp) as dbg:
        pass
    assert "never called" in gaps(dbg)["the forward pass"]


def test_modules_that_are_never_called(watch: Watch, train: Train) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    model.spare = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    model.weights = nn.ParameterList([nn.Parameter(torch.ones(1))])
    model.forward = lambda x: model[0](x)
    with watch(model) as dbg:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert gaps(dbg) == {"modules spare.0, spare.1": "never called in a watched training step"}


def test_lazy_modules(watch: Watch, read: Read, train: Train) -> None:
    """Their parameters get values in the first call, and their class changes with it."""
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))
    with watch(model) as dbg:
        model(torch.randn(2, 4))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    record = read(dbg)
    assert record.param("0.weight").shape == (8, 4)
    assert record.module("0").kind == "Linear"
    assert len(record.series(Kind.PARAM, "2.weight", m.P_GRAD)) == 3


def test_lazy_modules_that_stay_lazy(watch: Watch, read: Read) -> None:
    model = nn.Sequential(nn.LazyLinear(8))
    with watch(model) as dbg:
        pass
    assert read(dbg).param("0.weight").shape == ()


def test_the_meta_device(watch: Watch, read: Read) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device="meta")).sum().backward()
            optimizer.step()
    assert "meta device" in gaps(dbg)["values"]
    record = read(dbg)
    assert record.facts.run.steps == 3
    assert record.module("1").order is not None


def test_a_default_device_does_not_carry_us_along(watch: Watch, read: Read, train: Train) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    with torch.device("meta"):
        dbg = watch(model).attach()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    dbg.close()
    assert len(read(dbg).series(Kind.MODULE, "0", m.ACT_RMS)) == 3


def test_complex_numbers(watch: Watch, read: Read) -> None:
    model = nn.Linear(4, 2, dtype=torch.complex64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(3, 4, dtype=torch.complex64)).abs().sum().backward()
            optimizer.step()
    assert gaps(dbg) == {"modules the model itself": "the output has no real numbers to look at"}
    assert len(read(dbg).series(Kind.PARAM, "weight", m.P_RATIO)) == 3


def test_torchscript_parts(watch: Watch, read: Read, train: Train) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = torch.jit.script(nn.Sequential(nn.Linear(8, 2), nn.ReLU()))
    model = nn.Sequential(nn.Linear(4, 8), part)
    with watch(model) as dbg:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert gaps(dbg) == {"TorchScript modules": "they take no hooks"}
    record = read(dbg)
    assert len(record.series(Kind.MODULE, "0", m.ACT_RMS)) == 3
    assert len(record.series(Kind.PARAM, "1.0.weight", m.P_GRAD)) == 3


def test_a_model_in_torchscript(watch: Watch, train: Train) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.script(nn.Sequential(nn.Linear(4, 2)))
    with watch(model) as dbg:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert "TorchScript modules" in gaps(dbg)


def test_switched_off(
    mlp: nn.Module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: Train
) -> None:
    monkeypatch.setenv("NEURALDBG_MODE", "off")
    before = hooks_of(mlp)
    with NeuralDbg(mlp, out=tmp_path / "run.ndbg") as dbg:
        assert hooks_of(mlp) == before
        assert boundaries.LISTENERS == []
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1))
        dbg.step = 7
    assert dbg.step == 0
    assert not (tmp_path / "run.ndbg").exists()
    found = dbg.diagnosis()
    assert found.verdict == "healthy"
    assert "NEURALDBG_MODE=off" in found.gaps[0].why
    assert repr(dbg) == "NeuralDbg(Sequential, off)"


# -- other users of the model ----------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_functorch_transforms(mlp: nn.Module, watch: Watch, read: Read, train: Train) -> None:
    x, params = torch.randn(5, 4), dict(mlp.named_parameters())

    def one(params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(mlp, params, (x,)).sum()

    def all_of_them() -> list[torch.Tensor]:
        grads = torch.func.vmap(torch.func.grad(one), (None, 0))(params, x)
        jacobian = torch.func.jacrev(mlp)(x[0])
        forward = torch.func.jvp(mlp, (x,), (x,))
        return [*grads.values(), jacobian, *forward, torch.func.vmap(mlp)(x)]

    expected = all_of_them()
    with watch(mlp) as dbg:
        assert all(map(torch.equal, all_of_them(), expected))
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 1)
    fact = read(dbg).module("0")
    assert fact.calls == 1  # transformed calls are not training


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool, mlp: nn.Module, watch: Watch, train: Train) -> None:
    x = torch.randn(2, 4)
    with watch(mlp):
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 1)
        exported = torch.export.export(mlp, (x,), strict=strict)
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 1)
    assert "neuraldbg" not in str(exported)
    assert "register_hook" not in str(exported)
    assert torch.export.export(mlp, (x,), strict=strict).module()(x).shape == (2, 2)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_tracing(mlp: nn.Module, watch: Watch, train: Train) -> None:
    x = torch.randn(2, 4)
    with watch(mlp):
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 1)
        traced = torch.jit.trace(mlp, (x,))
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 1)
        assert torch.equal(traced(x), mlp(x))
    assert "neuraldbg" not in str(traced.graph)


def test_fx_tracing(mlp: nn.Module, watch: Watch, train: Train) -> None:
    with watch(mlp):
        traced = torch.fx.symbolic_trace(mlp)
        train(mlp, torch.optim.SGD(mlp.parameters(), lr=0.1), 1)
    assert {node.op for node in traced.graph.nodes} == {"placeholder", "call_module", "output"}
