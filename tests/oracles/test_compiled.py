"""What taps read inside compiled graphs is what ordinary hooks see in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from .conftest import Observe
from .models import CASES, Saved
from .plain import Plain
from .twins import BODIES, compare, train, twins

# Dynamo leaves recurrent layers to eager mode.
COMPILABLE = [name for name in CASES if name != "recurrent"]

# Where a module has hooks, Dynamo asks its inputs for their gradient, and hides the warning
# that this brings only where warnings are not errors.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def check(
    observe: Observe,
    name: str,
    body: str,
    compile_: Callable[[nn.Module], nn.Module | Callable[[Tensor], Tensor]],
    rounding: float,
) -> None:
    case = CASES[name]
    watched, oracle = twins(case)
    plain = Plain(oracle)
    train(oracle, case, BODIES[body], plain.end_step)
    model = compile_(watched)
    record = observe(watched, lambda: train(model, case, BODIES[body], lambda: None))
    names = [n for n, module in oracle.named_modules() if not isinstance(module, nn.Sequential)]
    compare(record, case, plain, names, rounding)
    assert record.facts.run.compiled


def whole(backend: str) -> Callable[[nn.Module], nn.Module]:
    return lambda model: torch.compile(model, backend=backend, fullgraph=True)


@pytest.mark.parametrize("name", COMPILABLE)
def test_compiled_as_a_whole(name: str, observe: Observe) -> None:
    check(observe, name, "once", whole("aot_eager"), 1e-5)
    assert not counters["graph_break"]


@pytest.mark.parametrize("body", ["accumulate", "two_forwards", "retained", "evaluated"])
def test_loops_around_a_compiled_model(body: str, observe: Observe) -> None:
    check(observe, "twice", body, whole("aot_eager"), 1e-5)
    assert not counters["graph_break"]


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_compiled_by_inductor(name: str, observe: Observe) -> None:
    check(observe, name, "once", whole("inductor"), 1e-4)
    assert not counters["graph_break"]


def blocks(kind: str) -> Callable[[nn.Module], nn.Module]:
    def compile_(model: Saved) -> Saved:
        model.kind = kind
        for block in model.blocks:
            block.compile(backend="aot_eager", fullgraph=True)
        return model

    return compile_


@pytest.mark.parametrize("body", ["once", "two_forwards"])
@pytest.mark.parametrize("kind", ["none", "reentrant", "newer"])
def test_compiled_block_by_block(kind: str, body: str, observe: Observe) -> None:
    """Also where each compiled block is checkpointed."""
    check(observe, "blocks", body, blocks(kind), 1e-5)


def test_checkpoints_inside_a_compiled_model(observe: Observe) -> None:
    def compile_(model: Saved) -> nn.Module:
        model.kind = "newer"
        return whole("aot_eager")(model)

    check(observe, "blocks", "two_forwards", compile_, 1e-5)
    assert not counters["graph_break"]


def test_compiled_wrappers_inside_the_model(observe: Observe) -> None:
    """Blocks replaced by `torch.compile(block)`: names and kinds are the user's own."""
    case = CASES["blocks"]
    watched, oracle = twins(case)
    plain = Plain(oracle)
    train(oracle, case, BODIES["once"], plain.end_step)
    for i, block in enumerate(watched.blocks):
        watched.blocks[i] = torch.compile(block, backend="aot_eager")
    record = observe(watched, lambda: train(watched, case, BODIES["once"], lambda: None))
    compare(record, case, plain, [n for n, _ in oracle.named_modules()], 1e-5)
    kinds = {n: type(module).__name__ for n, module in oracle.named_modules()}
    assert {f.name: f.kind for f in record.facts.modules} == kinds
    assert {p.name for p in record.facts.params} == {n for n, _ in oracle.named_parameters()}
    assert record.module("blocks.0.up").caller == "blocks.0"
    assert "_orig_mod" not in repr(record.facts) + repr(record.channels.keys())
