"""An LSTM that reads a handwritten digit row by row."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Adam

from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, digits


class RowReader(nn.Module):
    """Two recurrent layers, read at the last row."""

    def __init__(
        self,
        width: int = 48,
        layers: int = 2,
        dropout: float = 0.0,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, width, num_layers=layers, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(width, 10)
        self.out = output(dim=1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, pixels: Tensor) -> Tensor:
        """(batch, 64) to scores of shape (batch, 10)."""
        states, _ = self.lstm(pixels.unflatten(1, (8, 8)))
        scores: Tensor = self.out(self.fc(self.drop(states[:, -1])))
        return scores


@program
def rows_lstm() -> Plan:
    """More than 85 in a hundred held-out digits are read."""
    return Plan(
        name="rows_lstm",
        task="classes",
        data=digits,
        build=RowReader,
        shape={"width": 48, "layers": 2, "dropout": 0.0, "output": None},
        loss=nn.CrossEntropyLoss(),
        optimizer=Adam,
        settings={"lr": 5e-3},
        measure=accuracy,
        mark=0.85,
        steps=240,
        float16=False,
        batch=32,
        clip=1.0,
        evaluate_every=40,
    )
