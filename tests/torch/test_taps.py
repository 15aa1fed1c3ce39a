"""Taps: what they look at, when, and what becomes of them in copies."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuraldbg.torch.taps import (
    IN_GRAPH,
    SINKS,
    SWITCH,
    InputTap,
    ModuleTap,
    PredictionTap,
    Slot,
    Tap,
    close_slot,
    first_tensor,
    flatten,
    look,
)

Pair = namedtuple("Pair", "hidden out")


@dataclasses.dataclass
class Output:
    loss: Tensor
    logits: Tensor
    extra: object = None


S, A, B = torch.tensor(1.0), torch.ones(2), torch.ones(3)
IDS = torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (A, A),
        (S, S),
        (IDS, None),
        (None, None),
        ("text", None),
        ((), None),
        ((IDS, A, B), A),
        ([A, B], A),
        ({"ids": IDS, "x": B}, B),
        (OrderedDict(loss=S, logits=A), A),
        (Pair(A, B), A),
        (Output(S, A), A),
        (Output(S, S.clone(), (A,)), A),
        ((S,), S),
        ((IDS, (A, (B,))), A),
        ((IDS, (IDS, (A,))), None),  # too deep
        ({"past": {"key": A}}, A),
        (Output, None),  # the class itself
    ],
)
def test_the_tensor_that_is_looked_at(value: Any, want: Tensor | None) -> None:
    assert first_tensor(value) is want


def test_flattening_keeps_the_order_and_ends() -> None:
    assert [x is y for x, y in zip(flatten((A, {"b": [B]}, S), 3), (A, B, S), strict=True)] == [
        True
    ] * 3
    loop: list[Any] = [A]
    loop.append(loop)
    assert len(flatten(loop, 3)) == 3


class Catch:
    """A slot that keeps what it is sent."""

    def __init__(self) -> None:
        self.caught: list[Tensor] = []
        self.slot = Slot(self.caught.append)


@pytest.fixture
def catch() -> Iterator[Any]:
    made: list[Catch] = []

    def make() -> Catch:
        made.append(Catch())
        return made[-1]

    yield make
    for each in made:
        close_slot(each.slot.number)


@pytest.fixture
def tapped(catch: Any) -> tuple[nn.Linear, Catch, Catch, Catch]:
    """A layer under a tap: output, gradient, input."""
    layer = nn.Linear(3, 2)
    output, gradient, source = catch(), catch(), catch()
    layer.register_forward_hook(
        ModuleTap(output.slot.tensor, gradient.slot.tensor, source.slot.tensor)
    )
    return layer, output, gradient, source


def test_a_tap_sees_output_gradient_and_input(tapped: Any) -> None:
    layer, output, gradient, source = tapped
    SWITCH.on = True
    x = torch.randn(4, 3)
    y = layer(x)
    (3 * y).sum().backward()
    SWITCH.on = False
    assert output.caught[0] is y
    assert source.caught[0] is x
    assert gradient.caught[0].tolist() == [[3.0, 3.0]] * 4


def test_a_tap_is_silent_when_switched_off_and_without_gradient(tapped: Any) -> None:
    layer, *catches = tapped
    layer(torch.randn(4, 3)).sum().backward()
    SWITCH.on = True
    with torch.no_grad():
        layer(torch.randn(4, 3))
    with torch.inference_mode():
        layer(torch.randn(4, 3))
    SWITCH.on = False
    assert [c.caught for c in catches] == [[], [], []]


def test_calls_without_gradient_in_training_mode_are_counted(catch: Any) -> None:
    layer, tap = nn.Linear(3, 2), ModuleTap(catch().slot.tensor, catch().slot.tensor, None)
    layer.register_forward_hook(tap)
    with torch.no_grad():
        layer(torch.randn(4, 3))
        layer.eval()
        layer(torch.randn(4, 3))
    assert tap.unseen == 1


def test_no_hook_stays_on_a_leaf(catch: Any) -> None:
    """A module may return a parameter, or its input."""

    class Give(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self) -> Tensor:
            return self.weight

    give = Give()
    give.register_forward_hook(ModuleTap(catch().slot.tensor, catch().slot.tensor, None))
    SWITCH.on = True
    give().sum().backward()
    SWITCH.on = False
    assert not give.weight._backward_hooks


def test_outputs_without_numbers_are_a_mere_call(catch: Any) -> None:
    """The slot itself is sent: a whole number."""
    output = catch()
    tap = ModuleTap(output.slot.tensor, catch().slot.tensor, None)
    SWITCH.on = True
    for value in (None, IDS, "text", torch.ones(0)):
        tap(nn.Identity(), (), value)
    SWITCH.on = False
    assert [x is output.slot.tensor for x in output.caught] == [True] * 4


def test_the_inputs_of_the_whole_model(catch: Any) -> None:
    inputs, training, evaluation = [catch(), catch()], catch(), catch()
    tap = InputTap([c.slot.tensor for c in inputs], training.slot.tensor, evaluation.slot.tensor)
    model = nn.Identity()
    SWITCH.on = True
    tap(model, (IDS, {"mask": torch.ones(0)}), {"x": [A]})
    with torch.no_grad():
        tap(model, (A,), {})
        model.eval()
        tap(model, (A,), {})
        tap(model, (A,), {})
    SWITCH.on = False
    tap(model, (A,), {})
    assert inputs[0].caught[0] is IDS
    assert inputs[1].caught == []  # empty tensors are passed over
    assert (len(training.caught), len(evaluation.caught)) == (1, 2)


def test_the_prediction_of_the_whole_model(catch: Any) -> None:
    seen = catch()
    tap = PredictionTap(seen.slot.tensor)
    tap(nn.Identity(), (), A)
    SWITCH.on = True
    tap(nn.Identity(), (), Output(S, A))
    tap(nn.Identity(), (), torch.ones(0))
    with torch.no_grad():
        tap(nn.Identity(), (), A)
    SWITCH.on = False
    assert len(seen.caught) == 1
    assert seen.caught[0] is A


def test_a_closed_slot_drops_what_still_arrives(fresh_dynamo: Any) -> None:
    caught: list[Tensor] = []
    slot = Slot(caught.append)
    send = torch.compile(lambda x: look(x, slot.tensor), backend="aot_eager", fullgraph=True)
    look(A, slot.tensor)
    assert slot.number not in IN_GRAPH
    send(B)
    assert [x.tolist() for x in caught] == [A.tolist(), B.tolist()]
    assert slot.number in IN_GRAPH
    close_slot(slot.number)
    close_slot(slot.number)
    look(A, slot.tensor)
    send(A)
    assert len(caught) == 2
    assert slot.number not in SINKS
    IN_GRAPH.discard(slot.number)


def test_slots_live_on_the_host() -> None:
    with torch.device("meta"):
        slot = Slot(lambda _: None)
    close_slot(slot.number)
    assert (slot.tensor.device.type, int(slot.tensor)) == ("cpu", slot.number)


def test_the_operator_is_checked_by_torch(catch: Any) -> None:
    slot = catch().slot.tensor
    torch.library.opcheck(
        torch.ops.neuraldbg.look.default,
        (A, slot),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("make", [ModuleTap, InputTap, PredictionTap])
def test_copies_are_inert_and_pickles_need_nothing_of_ours(make: Any) -> None:
    slot = Slot(lambda _: None)
    arguments = {
        ModuleTap: (slot.tensor, slot.tensor, None),
        InputTap: ([slot.tensor], slot.tensor, slot.tensor),
        PredictionTap: (slot.tensor,),
    }[make]
    tap = make(*arguments)
    close_slot(slot.number)
    copied = copy.deepcopy(tap)
    assert type(copied) is Tap
    assert copied(nn.Identity(), (), {}) is None
    data = pickle.dumps(tap)
    assert b"neuraldbg" not in data
    assert pickle.loads(data)(nn.Identity(), (), A) is None  # noqa: S301
