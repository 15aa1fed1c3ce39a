"""Finding models, optimizers and hidden parameters."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuraldbg.torch.concern import FIRST, Concern
from neuraldbg.torch.discover import hidden_name, living, optimizers_of, owners, variable_name
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.identity import ByTensor
from neuraldbg.torch.models import Models


class Strange:
    """An object whose class lies, as proxies do."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        message = "asked too much"
        raise RuntimeError(message)


def test_the_living_are_found_without_asking_them() -> None:
    strange, model = Strange(), nn.Linear(1, 1)
    assert any(x is model for x in living(nn.Module))
    assert any(x is strange for x in living(Strange))


def test_the_search_does_no_harm_to_what_other_threads_are_making() -> None:
    """A tuple that is being filled must not be held by anybody else."""
    found: list[object] = []
    begun, done = threading.Event(), threading.Event()

    def fill() -> None:
        while not done.is_set():
            begun.set()
            try:
                tuple(i for i in range(2000))
            except SystemError as error:
                found.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    begun.wait()
    try:
        for _ in range(20):
            living(nn.Module)
    finally:
        done.set()
        thread.join()
    assert found == []


def test_the_outermost_owners() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.Linear(1, 1))
    wrapped = torch.compile(model, backend="eager")
    parallel = nn.DataParallel(nn.Linear(1, 1))
    assert owners(model[0].parameters()) == [model]
    assert owners(wrapped.parameters()) == [model]
    assert owners(parallel.parameters()) == [parallel.module]
    assert owners([torch.ones(1)]) == []


def test_a_module_in_the_making_owns_nothing() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:  # never calls its parent's
            pass

    late, weight = Late(), nn.Parameter(torch.ones(1))
    assert owners([weight]) == []
    del late


def test_optimizers_of_parameters() -> None:
    model = nn.Linear(1, 1)
    mine, other = torch.optim.SGD(model.parameters()), torch.optim.SGD(nn.Linear(1, 1).parameters())
    assert optimizers_of([model.bias]) == [mine]
    del other


def test_names_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    model, other = nn.Linear(1, 1), nn.Linear(1, 1)
    monkeypatch.setattr(main, "_private", model, raising=False)
    assert variable_name(model) is None
    monkeypatch.setattr(main, "net", torch.compile(model, backend="eager"), raising=False)
    assert variable_name(model) == "net"
    assert variable_name(other) is None


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.Linear(1, 1)
        self.loose = {"a": [nn.Linear(1, 1)], 3: nn.Parameter(torch.ones(1))}
        self.plain = [torch.ones(1)] * 3
        self.deep = [[[nn.Linear(1, 1)]]]


def test_hidden_places() -> None:
    model = nn.Module()
    model.part = Holder()
    part = model.part
    assert hidden_name(model, part.loose["a"][0].weight) == "part.loose.a.0.weight"
    assert hidden_name(model, part.loose[3]) == "part.loose.3"
    assert hidden_name(part, part.loose[3]) == "loose.3"
    assert hidden_name(model, part.kept.weight) is None
    assert hidden_name(model, part.deep[0][0][0].weight) is None
    assert hidden_name(model, nn.Parameter(torch.ones(1))) is None


# -- by identity --------------------------------------------------------------------------


def test_values_by_tensor() -> None:
    a, b = torch.ones(3), torch.ones(3)
    kept: ByTensor[str] = ByTensor()
    assert not kept
    kept.put(a, "a")
    kept.put(b, "b")
    assert (kept.get(a), kept.get(b), kept.get(torch.ones(3))) == ("a", "b", None)
    assert a in kept
    assert torch.ones(3) not in kept
    kept.put(a, "c")
    assert [value for _, value in kept.items()] == ["c", "b"]
    del b
    assert [value for _, value in kept.items()] == ["c"]


def test_a_reused_address_is_another_tensor() -> None:
    kept: ByTensor[int] = ByTensor()
    for i in range(2000):
        tensor = torch.ones(1)
        assert kept.get(tensor) is None
        assert tensor not in kept
        kept.put(tensor, i)
        assert kept.get(tensor) == i
        if i % 7 == 0:
            stays = tensor
    assert kept.get(stays) is not None
    assert len(kept._kept) < 200


def test_freed_tensors_make_room() -> None:
    kept: ByTensor[int] = ByTensor()
    for _ in range(20):
        batch = [torch.ones(1) for _ in range(100)]
        for i, tensor in enumerate(batch):
            kept.put(tensor, i)
        assert len(kept.items()) == 100
        assert len(kept._kept) <= 264
        del batch, tensor


# -- whose loss ---------------------------------------------------------------------------


@pytest.fixture
def pair() -> tuple[nn.Module, nn.Module, Concern]:
    mine, other = nn.Linear(2, 2), nn.Linear(2, 2)
    return mine, other, Concern(lambda: dict(mine.named_parameters()), only=True)


def loss_of(model: nn.Module) -> Tensor:
    return model(torch.ones(1, 2)).sum()


def test_losses_are_told_apart_by_their_graph(pair: Any) -> None:
    mine, other, concern = pair
    assert concern.loss(loss_of(mine), due=True)
    assert concern.loss(other(mine(torch.ones(1, 2))).sum(), due=True)
    assert not concern.loss(loss_of(other), due=True)
    assert not concern.loss(other(mine(torch.ones(1, 2)).detach()).sum(), due=True)
    assert concern.loss(torch.tensor(1.0), due=True)  # no graph: nothing speaks against it


@pytest.mark.parametrize("zeroed", [True, False])
def test_without_a_look_at_the_graph_the_gradients_tell(pair: Any, zeroed: bool) -> None:
    mine, other, concern = pair
    for _ in range(FIRST):
        concern.loss(loss_of(other), due=False)
    for model, foreign in ((mine, False), (other, True)) * 3:
        if zeroed:
            mine.zero_grad()
        loss = loss_of(model)
        assert concern.loss(loss, due=False)
        loss.backward()
        assert concern.was_foreign() is foreign
    assert not concern.was_foreign()  # there was no pass


def test_alone_nothing_is_marked(pair: Any) -> None:
    mine, _, concern = pair
    for _ in range(FIRST + 3):
        assert concern.loss(loss_of(mine), due=False)
    assert not concern.was_foreign()


def test_optimizers_are_told_apart(pair: Any) -> None:
    mine, other, concern = pair
    ours, theirs = (torch.optim.SGD(x.parameters()) for x in (mine, other))
    assert concern.optimizer(ours)
    assert not concern.optimizer(theirs, due=False)
    theirs.add_param_group({"params": mine.parameters()})
    assert not concern.optimizer(theirs, due=False)  # remembered
    assert concern.optimizer(theirs, due=True)  # asked again


def test_whoever_is_not_picky_takes_all(pair: Any) -> None:
    _, other, _ = pair
    concern = Concern(dict, only=False)
    assert concern.loss(loss_of(other), due=True)
    assert concern.optimizer(torch.optim.SGD(other.parameters()))


# -- models under watch ---------------------------------------------------------------------


@pytest.fixture
def models() -> Any:
    made = Models(Faults(strict=True), lambda *_: None, lambda _: None)
    yield made
    made.close()


def hooks(model: nn.Module) -> int:
    return sum(len(x._forward_hooks) for x in model.modules())


def test_a_model_is_watched_once(models: Models) -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    models.add(model)
    before = hooks(model)
    for again in (model, model[0], torch.compile(model, backend="eager")):
        models.add(again)
    assert (len(models.roots), hooks(model)) == (1, before)
    assert models.roots[0].compiled


def test_parts_are_taken_over_by_the_whole(models: Models) -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    alone = nn.Sequential(*[nn.Linear(1, 1) for _ in range(2)])
    models.add(alone)
    whole = hooks(alone)
    model[0].compile(backend="eager")
    for part in (model[0], model[1], model):
        models.add(part)
    assert [root.ref() for root in models.roots] == [alone, model]
    assert hooks(model) == whole
    assert models.roots[1].compiled


def test_each_model_has_a_name_of_its_own(models: Models) -> None:
    kept = [nn.Linear(1, 1) for _ in range(3)]
    for model in kept:
        models.add(model)
    assert [root.prefix for root in models.roots] == ["Linear", "Linear_2", "Linear_3"]
    for root in models.roots[:2]:
        root.reached = True
    models.settle_names(lambda _: False)
    assert [(r.named, r.prefix) for r in models.roots] == [
        (True, "Linear"),
        (True, "Linear_2"),
        (False, "Linear_3"),
    ]


def test_a_model_alone_has_no_prefix(models: Models) -> None:
    kept = [nn.Linear(1, 1) for _ in range(2)]
    for model in kept:
        models.add(model)
    models.roots[1].reached = True
    models.settle_names(lambda _: False)
    assert models.roots[1].prefix == ""
    models.roots[0].reached = True
    models.settle_names(lambda _: False)
    assert [root.prefix for root in models.roots] == ["Linear", ""]


def test_one_that_is_going_to_be_trained_counts(models: Models) -> None:
    kept = [nn.Linear(1, 1) for _ in range(2)]
    for model in kept:
        models.add(model)
    models.roots[0].reached = True
    models.settle_names(lambda _: True)
    assert models.roots[0].prefix == "Linear"


def test_the_last_chance_names_the_unused(models: Models) -> None:
    model = nn.Linear(1, 1)
    models.add(model)
    models.settle_names(lambda _: False)
    assert not models.roots[0].named
    models.settle_names(lambda _: False, last=True)
    assert (models.roots[0].named, models.roots[0].prefix) == (True, "")
