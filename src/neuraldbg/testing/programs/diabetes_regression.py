"""A small perceptron that predicts a quantity from a table."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import SGD

from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import determination, diabetes


class Regressor(nn.Module):
    """Two hidden layers and one number."""

    def __init__(
        self,
        width: int = 32,
        activation: type[nn.Module] | None = nn.Tanh,
        dropout: float = 0.0,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, width)
        self.fc2 = nn.Linear(width, width)
        self.act = activation() if activation else nn.Identity()
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width, 1)
        self.out = (output or nn.Identity)()

    def forward(self, rows: Tensor) -> Tensor:
        """Numbers of shape (batch, 1)."""
        x = self.act(self.fc1(rows))
        x = self.drop(self.act(self.fc2(x)))
        value: Tensor = self.out(self.head(x))
        return value


@program
def diabetes_regression() -> Plan:
    """A third of the variance is explained; the best models reach about a half."""
    return Plan(
        name="diabetes_regression",
        task="quantity",
        data=diabetes,
        build=Regressor,
        shape={"width": 32, "activation": nn.Tanh, "dropout": 0.0, "output": None},
        loss=nn.MSELoss(),
        optimizer=SGD,
        settings={"lr": 0.03, "momentum": 0.8},
        measure=determination,
        mark=0.33,
        steps=200,
        batch=32,
        evaluate_every=40,
    )
