"""Watching a script that was not written for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record
from neuraldbg.store.reader import RunFile, load_record
from neuraldbg.torch import attach
from neuraldbg.torch.loop import WATCHES
from neuraldbg.torch.taps import SWITCH

Train = Callable[..., list[float]]
Script = Callable[..., None]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[Callable[[], Any]], tuple[Record, Diagnosis]]]:
    """Run a function as `neuraldbg run` would run a script."""
    progress: list[str] = []

    def run(body: Callable[[], Any]) -> tuple[Record, Diagnosis]:
        session = attach.start(
            tmp_path / "run.ndbg", float("inf"), True, ["train.py", "--x"], progress.append
        )
        try:
            body()
        finally:
            found = session.finish("ok", None)
        assert found is not None
        return load_record(session.path), found

    run.progress = progress  # type: ignore[attr-defined]
    return run


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give objects names in the script."""

    def give(**objects: Any) -> None:
        for name, value in objects.items():
            monkeypatch.setattr(sys.modules["__main__"], name, value, raising=False)

    return give


def modules_seen(record: Record) -> set[str]:
    return {c.name for c in record.channels if c.kind == Kind.MODULE}


def params_seen(record: Record) -> set[str]:
    return {c.name for c in record.channels if c.kind == Kind.PARAM}


def compiled(kind: str, model: nn.Module) -> Callable[[Tensor], Tensor]:
    if kind == "whole":
        return torch.compile(model, backend="eager")
    if kind == "in place":
        model.compile(backend="eager")
    if kind == "forward":
        model.forward = torch.compile(model.forward, backend="eager")
    if kind == "by block":
        for block in model.children():
            block.compile(backend="eager")
    return model


@pytest.mark.parametrize("kind", ["no", "whole", "in place", "forward", "by block"])
@pytest.mark.parametrize("first", ["optimizer", "compile"])
def test_a_model_is_found(
    first: str, kind: str, script: Any, train: Train, named: Any, fresh_dynamo: Any
) -> None:
    mine = []

    def body() -> None:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1) if first == "optimizer" else None
        model = compiled(kind, net)
        optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
        named(net=net, model=model)
        mine.extend(train(model, optimizer, 4))

    record, _ = script(body)
    assert record.series(Kind.LOSS, "loss", m.L_VALUE).values.tolist() == mine
    assert modules_seen(record) == {"0", "1", "2"}
    assert params_seen(record) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert len(record.series(Kind.MODULE, "2", m.ACT_RMS)) == 4
    assert len(record.series(Kind.MODULE, "0", m.GRAD_RMS)) == 4
    assert {f.name for f in record.facts.modules} == {"", "0", "1", "2"}
    assert {p.optimizer for p in record.facts.params} == {0}
    run = record.facts.run
    assert run.compiled == (kind != "no")
    assert run.backend == (None if kind == "no" else "eager")
    assert (run.steps, run.command) == (4, ("train.py", "--x"))
    assert script.progress[-1].startswith("step 3  loss ")
    assert not record.facts.gaps


def test_a_model_without_an_optimizer_is_found_by_its_loss(script: Any) -> None:
    def body() -> None:
        model = nn.Linear(4, 2)
        for _ in range(4):
            model(torch.randn(8, 4)).square().mean().backward()

    record, found = script(body)
    assert {p.name for p in record.facts.params} == {"weight", "bias"}
    assert record.facts.run.notes[m.N_STEPS] == 0
    # The first pass gave the model away; it was looked at from the second on.
    assert record.series(Kind.MODULE, "", m.ACT_RMS).steps.tolist() == [1, 2, 3]
    assert found.facts.run.steps == 4


def gan(names: bool, named: Any, build: Callable[[], nn.Module]) -> None:
    first, second = build(), build()
    if names:
        named(gen=first, dis=second)
    opts = [torch.optim.SGD(x.parameters(), lr=0.01) for x in (first, second)]
    for _ in range(3):
        with torch.no_grad():  # at first only one of the two is seen in training
            fake = first(torch.randn(8, 4))
        opts[1].zero_grad()
        F.softplus(second(fake)).mean().backward()
        opts[1].step()
        opts[0].zero_grad()
        F.softplus(-second(first(torch.randn(8, 4)))).mean().backward()
        opts[0].step()


@pytest.mark.parametrize(
    ("names", "prefixes"), [(True, {"gen", "dis"}), (False, {"Linear", "Linear_2"})]
)
def test_several_models_are_told_apart(
    names: bool, prefixes: set[str], script: Any, named: Any
) -> None:
    record, _ = script(lambda: gan(names, named, lambda: nn.Linear(4, 4)))
    want = {f"{x}.{p}" for x in prefixes for p in ("weight", "bias")}
    assert {p.name for p in record.facts.params} == want
    assert params_seen(record) == want
    assert modules_seen(record) == {f.name for f in record.facts.modules} == prefixes
    assert {p.optimizer for p in record.facts.params} == {0, 1}
    assert all(p.init_rms for p in record.facts.params)


def test_a_model_that_is_not_trained_gives_no_prefix(script: Any, named: Any, train: Any) -> None:
    """A frozen teacher beside the student."""

    def body() -> None:
        teacher, student = nn.Linear(4, 2), nn.Linear(4, 2)
        teacher.compile(backend="eager")
        named(teacher=teacher, student=student)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        with torch.no_grad():
            teacher(torch.randn(8, 4))
        train(student, optimizer)

    record, _ = script(body)
    assert {p.name for p in record.facts.params} == {"weight", "bias"}


class Hidden(nn.Module):
    """Keeps layers where they are not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.hids = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.heads = {"a": nn.Linear(4, 2)}
        self.scales = (nn.Parameter(torch.ones(2)),)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.hids:
            x = layer(x)
        return self.heads["a"](x) * self.scales[0]


HIDDEN = {
    "hids.0.weight",
    "hids.0.bias",
    "hids.1.weight",
    "hids.1.bias",
    "heads.a.weight",
    "heads.a.bias",
    "scales.0",
}


@pytest.mark.parametrize("how", ["script", "with"])
def test_hidden_parameters_have_the_names_the_user_would_give(
    how: str, script: Any, train: Train, watch: Any, read: Any
) -> None:
    if how == "script":

        def body() -> None:
            model = Hidden()
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), 5)

        record, _ = script(body)
    else:
        model = Hidden()
        with watch(model) as dbg:
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), 5)
        record = read(dbg)
    facts = {p.name: p for p in record.facts.params}
    assert facts.keys() == {"stem.weight", "stem.bias", *HIDDEN}
    assert {n for n, p in facts.items() if not p.registered} == HIDDEN
    assert all(p.reached for p in facts.values())
    assert {n for n, p in facts.items() if p.optimizer is None} == HIDDEN
    assert {f.name for f in record.facts.modules} == {"", "stem"}


def test_parameters_that_no_module_owns(script: Any) -> None:
    def body() -> None:
        w = nn.Parameter(torch.randn(4, 2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (torch.randn(8, 4) @ w).square().mean().backward()
            optimizer.step()

    record, _ = script(body)
    (fact,) = record.facts.params
    assert (fact.name, fact.registered, fact.optimizer) == ("parameter.0", False, 0)
    assert len(record.series(Kind.PARAM, "parameter.0", m.P_GRAD)) == 3


def test_parameters_that_the_loss_does_not_reach(script: Any, train: Train) -> None:
    def body() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model.forward = lambda x: model[1](model[0](x).detach())
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 5)

    record, _ = script(body)
    assert {p.name: p.reached for p in record.facts.params} == {
        "0.weight": False,
        "0.bias": False,
        "1.weight": True,
        "1.bias": True,
    }
    assert record.series(Kind.PARAM, "0.weight", m.P_GRAD_NONE).values.tolist() == [1] * 5


def test_models_trained_one_after_another(script: Any, train: Train) -> None:
    """As in cross-validation: each in a function that returns."""

    def fold(width: int) -> None:
        model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 4)

    def body() -> None:
        for width in (3, 5):
            fold(width)

    record, _ = script(body)
    assert record.facts.run.steps == 8
    shapes = {p.shape for p in record.facts.params}
    assert {(3, 4), (5, 4)} <= shapes
    assert [o.steps for o in record.facts.optimizers] == [4, 4]


def test_what_ended_the_script_is_kept(script: Any, tmp_path: Path) -> None:
    session = attach.start(tmp_path / "run.ndbg", 0.02, False, ["train.py"])
    model = nn.Linear(4, 2)
    model(torch.randn(8, 4)).sum().backward()
    found = session.finish("exception", ValueError("bad batch"))
    assert found is not None
    assert found.facts.run.finished == "exception"
    assert found.facts.run.notes[m.N_EXCEPTION] == "ValueError: bad batch"
    with RunFile(session.path) as file:
        assert file.diagnosis_json() == found.to_json()


def test_a_script_that_trains_nothing_leaves_no_file(tmp_path: Path) -> None:
    session = attach.start(tmp_path / "run.ndbg", 0.02, False, ["train.py"])
    nn.Linear(4, 2)(torch.randn(8, 4))
    assert session.finish("ok", None) is None
    assert not session.path.exists()


def test_a_crash_before_the_first_backward_pass_is_told_where_torch_says_why(
    tmp_path: Path,
) -> None:
    session = attach.start(tmp_path / "run.ndbg", float("inf"), True, ["train.py"])
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    torch.optim.Adam(model.parameters())
    with pytest.raises(RuntimeError) as caught:
        F.binary_cross_entropy(4 + model(torch.ones(2, 3)).abs(), torch.ones(2, 1))
    found = session.finish("exception", caught.value)
    assert found is not None
    assert found.hypotheses[0].cause == "output_activation_mismatch"


def test_a_crash_before_the_first_backward_pass_that_says_nothing_leaves_no_file(
    tmp_path: Path,
) -> None:
    session = attach.start(tmp_path / "run.ndbg", float("inf"), True, ["train.py"])
    torch.optim.Adam(nn.Linear(3, 4).parameters())
    assert session.finish("exception", ValueError("bad batch")) is None
    assert not session.path.exists()


# -- what no module owns, and what is gone ------------------------------------------------------


def fit(model: nn.Module, steps: int) -> None:
    """A training whose optimizer is gone when it returns."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def test_a_model_that_is_gone_when_the_run_ends_is_remembered(script: Script) -> None:
    """Its first step is not looked at, and no other step would write its facts down."""

    def body() -> None:
        (watch,) = WATCHES
        fit(nn.Linear(4, 2), 120)
        watch.due = SWITCH.on = False
        fit(nn.Linear(4, 3), 5)

    record, _ = script(body)
    assert {tuple(p.shape) for p in record.facts.params} >= {(2, 4), (3, 4)}


def test_plain_tensors_that_an_optimizer_trains_are_parameters(script: Script) -> None:
    """As `torch.func.functional_call` is given them."""
    mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    given = {k: v.detach().clone().requires_grad_() for k, v in mlp.named_parameters()}

    def body() -> None:
        optimizer = torch.optim.SGD(list(given.values()), lr=0.1)
        for _ in range(4):
            loss = torch.func.functional_call(mlp, given, (torch.randn(8, 4),)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    record, _ = script(body)
    held = [p for p in record.facts.params if p.optimizer == 0]
    assert [tuple(p.shape) for p in held] == [tuple(v.shape) for v in given.values()]
    assert all(len(record.series(Kind.PARAM, p.name, m.P_GRAD)) for p in held)
    assert all(p.init_rms for p in held if len(p.shape) > 1)
