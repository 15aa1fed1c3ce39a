"""A convolutional network with batch normalisation, Adam, on scikit-learn's digits."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Adam

from neuraldbg.testing.plan import Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, pictures


class DigitsCnn(nn.Module):
    """Three convolutions and a classifier."""

    def __init__(
        self,
        width: int = 16,
        activation: type[nn.Module] | None = nn.ReLU,
        norm: type[nn.Module] | None = nn.BatchNorm2d,
        dropout: float = 0.1,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential()
        given = 1
        for i, wide in enumerate((width, width, 2 * width), 1):
            self.features.add_module(f"conv{i}", nn.Conv2d(given, wide, 3, padding=1))
            if norm is not None:
                self.features.add_module(f"norm{i}", norm(wide))
            if activation is not None:
                self.features.add_module(f"act{i}", activation())
            given = wide
        self.features.add_module("pool", nn.MaxPool2d(2))
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(given * 16, 10)
        self.out = output(dim=1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, images: Tensor) -> Tensor:
        """Scores of shape (batch, 10)."""
        x = self.features(images).flatten(1)
        scores: Tensor = self.out(self.classifier(self.drop(x)))
        return scores


@program
def digits_cnn() -> Plan:
    """More than nine in ten held-out digits are read."""
    return Plan(
        name="digits_cnn",
        task="classes",
        data=pictures,
        build=DigitsCnn,
        shape={
            "width": 16,
            "activation": nn.ReLU,
            "norm": nn.BatchNorm2d,
            "dropout": 0.1,
            "output": None,
        },
        loss=nn.CrossEntropyLoss(),
        optimizer=Adam,
        settings={"lr": 2e-3},
        measure=accuracy,
        mark=0.92,
        steps=120,
        batch=32,
        evaluate_every=40,
    )
