"""What the compiled backward pass loses is named; what it keeps is not complained of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuraldbg.core.engine import diagnose

from .conftest import Observe

Run = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network() -> nn.Sequential:
    """A network whose convolutions inductor 2.13 trains with zeros on the CPU (of batches of 4)."""
    return nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def loses(model: nn.Module) -> bool:
    """Whether the compiled backward pass gives zeros where that of eager mode does not."""
    images, digits = torch.randn(4, 4, 8, 8), torch.tensor([1, 2, 3, 4])
    norms = []
    for run in (model, torch.compile(model)):
        model.zero_grad()
        F.cross_entropy(run(images), digits).backward()
        norms.append(float(model.get_parameter("0.weight").grad.norm()))
    torch._dynamo.reset()
    return norms[0] > 0 and norms[1] == 0


def fit(model: nn.Module, run: Run) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(30):
        digits = torch.randint(0, 10, (4,))
        images = torch.randn(4, 4, 8, 8) + F.one_hot(digits, 10)[:, :4, None, None]
        loss = F.cross_entropy(run(images), digits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# The truth is asked of torch itself: a release that mends its compiler must turn the answer.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_gradient_that_the_compiler_loses_is_named_where_it_is_lost(observe: Observe) -> None:
    model = network()
    truth = loses(model)
    compiled = torch.compile(model)
    found = diagnose(observe(model, lambda: fit(model, compiled))).hypotheses
    named = [h.where[0] for h in found if h.cause == "compiler_divergence"]
    assert named == (["0"] if truth else [])


def test_in_eager_mode_nothing_is_lost(observe: Observe) -> None:
    model = network()
    found = diagnose(observe(model, lambda: fit(model, model))).hypotheses
    assert not [h for h in found if h.cause in ("compiler_divergence", "broken_graph")]


def test_a_rounding_on_the_way_has_no_slope(observe: Observe) -> None:
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head(torch.round(4 * self.encoder(x)) / 4)
            return scores

    model = Rounded()

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(30):
            x = torch.randn(16, 8)
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    best = diagnose(observe(model, train)).hypotheses[0]
    assert (best.cause, best.where) == ("broken_graph", ("encoder",))
