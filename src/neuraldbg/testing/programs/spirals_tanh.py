"""Three spirals told apart by a tanh perceptron, RMSprop and a hand-written loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import RMSprop

from neuraldbg.testing.plan import Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, split

ARMS = 3
POINTS = 500


class Spirals(nn.Module):
    """Hidden layers in a list, and one score for each arm."""

    def __init__(
        self,
        width: int = 48,
        depth: int = 3,
        activation: type[nn.Module] | None = nn.Tanh,
        norm: type[nn.Module] | None = None,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(width if i else 2, width) for i in range(depth))
        self.norms = nn.ModuleList([norm(width) for _ in range(depth)] if norm else [])
        self.activation = activation() if activation else nn.Identity()
        self.scores = nn.Linear(width, ARMS)
        self.out = output(dim=1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, points: Tensor) -> Tensor:
        """(batch, 2) to scores of shape (batch, arms)."""
        x = points
        for i, layer in enumerate(self.hidden):
            x = layer(x)
            x = self.activation(self.norms[i](x) if self.norms else x)
        scores: Tensor = self.out(self.scores(x))
        return scores


def data() -> Data:
    """Points along three arms, with a little noise."""
    arm = torch.arange(ARMS).repeat_interleave(POINTS)
    radius = torch.rand(len(arm))
    angle = 3.5 * radius + arm * (2 * torch.pi / ARMS) + 0.1 * torch.randn(len(arm))
    points = radius[:, None] * torch.stack((angle.cos(), angle.sin()), 1)
    return split(2 * points, arm)


def loss(scores: Tensor, arms: Tensor) -> Tensor:
    """The mean negative log-likelihood, written out."""
    wanted = F.one_hot(arms, ARMS).float()
    return -(wanted * torch.log_softmax(scores, dim=1)).sum(dim=1).mean()


@program
def spirals_tanh() -> Plan:
    """More than nine in ten points are placed; a straight border places about a half."""
    return Plan(
        name="spirals_tanh",
        task="classes",
        stacked=True,
        data=data,
        build=Spirals,
        shape={"width": 48, "depth": 3, "activation": nn.Tanh, "norm": None, "output": None},
        loss=loss,
        optimizer=RMSprop,
        settings={"lr": 2e-3},
        measure=accuracy,
        mark=0.9,
        steps=250,
        batch=64,
        evaluate_every=50,
    )
