"""What is told from outside the model, and that callers notice nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.torch import boundaries, shield
from neuraldbg.torch.boundaries import Listener, ignore, listen


class Ear(Listener):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[Any, ...]]] = []
        for name in [n for n in vars(Listener) if not n.startswith("_")]:
            setattr(self, name, self._hear(name))

    def _hear(self, name: str) -> Callable[..., None]:
        return lambda *args: self.heard.append((name, args))

    def names(self) -> list[str]:
        return [name for name, _ in self.heard]


@pytest.fixture
def ear() -> Iterator[Ear]:
    made = Ear()
    listen(made)
    yield made
    ignore(made)


def test_a_training_step_is_heard(ear: Ear) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loss = weight.sum()
    loss.backward()
    norm = nn.utils.clip_grad_norm_([weight], 0.5)
    optimizer.step()
    assert ear.names() == [
        "optimizer_made",
        "scheduler_made",
        "backward_begins",
        "backward_ended",
        "clipped",
        "step_begins",
        "step_ended",
    ]
    assert ear.heard[2][1][0][0] is loss
    params, limit, total = ear.heard[4][1]
    assert (params[0] is weight, limit, total is norm) == (True, 0.5, True)


def test_all_ways_to_go_backward(ear: Ear) -> None:
    w = torch.ones(2, requires_grad=True)

    def parts() -> list[Tensor]:
        return [(w * i).sum() for i in (1, 2)]

    torch.autograd.backward(parts())
    torch.autograd.backward(tuple(parts()))
    torch.autograd.backward(x for x in parts())
    torch.autograd.backward(parts()[0], torch.tensor(2.0))
    torch.autograd.backward(torch.autograd.graph.get_gradient_edge(parts()[0]))
    parts()[0].backward(retain_graph=True)
    assert [len(args[0]) for name, args in ear.heard if name == "backward_begins"] == [
        *(2, 2, 2),
        *(1, 0, 1),
    ]
    assert w.grad.tolist() == [13, 13]


def test_an_error_in_a_backward_pass_is_the_users(ear: Ear) -> None:
    loss = torch.ones(2, requires_grad=True).square().sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    assert ear.names() == ["backward_begins", "backward_ended", "backward_begins"]


def test_loss_scaling_is_heard(ear: Ear) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    loss = weight.sum()
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.step(optimizer)
    heard = dict(ear.heard)
    assert [x is y for x, y in zip(heard["scaled"], (scaler, loss, scaled), strict=True)] == [
        True,
        True,
        True,
    ]
    assert ear.names()[-4:] == ["scaler_steps", "step_begins", "step_ended", "scaler_stepped"]
    assert weight.tolist() == pytest.approx([0.9, 0.9])
    assert [x.tolist() for x in scaler.scale([loss.detach()])] == [16.0]


def test_compiling_is_heard(ear: Ear, fresh_dynamo: Any) -> None:
    model = nn.Linear(1, 1)
    torch.compile(model, backend="eager")
    model.compile(backend="aot_eager")

    @torch.compile(backend="eager")
    def decorated(x: Tensor) -> Tensor:
        return x + 1

    assert decorated(torch.ones(1)).item() == 2
    told = [args for name, args in ear.heard if name == "compiling"]
    assert [backend for _, backend in told] == ["eager", "aot_eager", "aot_eager", "eager"]
    assert told[0][0] is told[1][0] is model


def test_evaluation_losses_are_heard(ear: Ear) -> None:
    x = torch.ones(3, requires_grad=True)
    F.mse_loss(x, torch.zeros(3))
    assert ear.heard == []
    with torch.no_grad():
        F.mse_loss(x, torch.zeros(3))
        nn.CrossEntropyLoss()(torch.zeros(2, 3), torch.tensor([0, 1]))
        F.mse_loss(x, torch.zeros(3), reduction="none")
    assert [(name, round(args[0].item(), 3)) for name, args in ear.heard] == [
        ("evaluated", 1.0),
        ("evaluated", 1.099),
    ]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_torchscript_still_compiles_what_is_wrapped(ear: Ear) -> None:
    def loss(a: Tensor, b: Tensor) -> Tensor:
        return F.mse_loss(a, b) + F.cross_entropy(a, b)

    a = torch.tensor([[1.0, 2.0]])
    assert torch.jit.script(loss)(a, a).item() == pytest.approx(loss(a, a).item())


def test_functorch_results_are_no_evaluations(ear: Ear) -> None:
    out = torch.func.vmap(F.mse_loss)(torch.ones(3, 2), torch.zeros(3, 2))
    assert out.tolist() == [1, 1, 1]
    assert ear.heard == []


def test_nobody_else_listens_any_more() -> None:
    """What was replaced meanwhile by somebody else stays; ours in it is inert."""
    first, second = Ear(), Ear()
    before = torch.autograd.backward
    listen(first)
    listen(second)
    ours = torch.autograd.backward
    assert ours is not before
    ignore(first)
    assert torch.autograd.backward is ours
    torch.autograd.backward = lambda *args, **kwargs: ours(*args, **kwargs)
    theirs = torch.autograd.backward
    try:
        ignore(second)
        ignore(second)
        assert torch.autograd.backward is theirs
        w = torch.ones(1, requires_grad=True)
        (2 * w).backward()
        assert w.grad.item() == 2
        assert first.heard == second.heard == []
    finally:
        torch.autograd.backward = before


def test_wrapped_functions_look_like_their_originals(ear: Ear) -> None:
    originals = {name: getattr(F, name).__wrapped__ for name in boundaries.LOSSES}
    for name, original in originals.items():
        assert getattr(F, name).__doc__ == original.__doc__
    assert pickle.loads(pickle.dumps(F.mse_loss)) is F.mse_loss  # noqa: S301
    assert torch.optim.SGD.__init__.__name__ == "__init__"


def test_listeners_may_be_deaf() -> None:
    """Every event has a default that does nothing."""
    deaf = Listener()
    for name in [n for n in vars(Listener) if not n.startswith("_") and n != "broke"]:
        method = getattr(deaf, name)
        method(*[None] * (method.__func__.__code__.co_argcount - 1))


# -- Dynamo ------------------------------------------------------------------------------


def test_disabled_functions_end_a_graph(fresh_dynamo: Any) -> None:
    seen = []

    def outer(x: Tensor) -> None:
        seen.append(type(x))
        inner(x)

    def inner(x: Tensor) -> None:
        seen.append(torch.compiler.is_compiling())

    shield.disable((outer,))

    def f(x: Tensor) -> Tensor:
        x = x + 1
        outer(x)
        return x * 2

    assert torch.compile(f, backend="eager")(torch.ones(1)).item() == 4
    assert seen == [Tensor, False]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(1))


def test_skipped_functions_are_still_traced_inside_a_graph(fresh_dynamo: Any) -> None:
    def helper(x: Tensor) -> Tensor:
        return x + 1

    shield.skip((helper,))
    f = torch.compile(lambda x: helper(x) * 2, backend="eager", fullgraph=True)
    assert f(torch.ones(1)).item() == 4
    assert torch.compile(helper, backend="eager")(torch.ones(1)).item() == 2
    assert fresh_dynamo["stats"]["unique_graphs"] == 1


def test_compiled_code_is_not_told_about(ear: Ear, fresh_dynamo: Any) -> None:
    """Losses and clipping inside a graph are the user's graph, without a trace of us."""
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def f(x: Tensor) -> Tensor:
        nn.utils.clip_grad_norm_([weight], 0.5)
        return F.mse_loss(x, x + 1)

    with torch.no_grad():
        assert f(torch.ones(3)).item() == 1
    assert ear.names() == ["compiling"]
    assert weight.grad.norm().item() == pytest.approx(0.5, abs=1e-4)
