"""A variational autoencoder of digits."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import Adam

from neuraldbg.testing.plan import Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import digits

Coded = tuple[Tensor, Tensor, Tensor]


class Vae(nn.Module):
    """Gives the reconstruction and the mean and logarithmic variance of the code."""

    def __init__(
        self,
        width: int = 96,
        code: int = 12,
        activation: type[nn.Module] | None = nn.ReLU,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        act = activation or nn.Identity
        self.encoder = nn.Sequential(nn.Linear(64, width), act(), nn.Linear(width, width), act())
        self.mean = nn.Linear(width, code)
        self.log_variance = nn.Linear(width, code)
        self.decoder = nn.Sequential(nn.Linear(code, width), act(), nn.Linear(width, 64))
        self.out = (output or nn.Identity)()

    def forward(self, pixels: Tensor) -> Coded:
        """(batch, 64) to a reconstruction and a distribution of codes."""
        hidden = self.encoder(pixels)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        code = mean + noise * (0.5 * log_variance).exp()
        return self.out(self.decoder(code)), mean, log_variance


def data() -> Data:
    """Digits are their own targets."""
    d = digits()
    return replace(d, targets=d.inputs, test_targets=d.test_inputs)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Kullback-Leibler divergence from the standard normal, by sample."""
    return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)


def loss(output: Coded, pixels: Tensor) -> Tensor:
    """Squared error and divergence, both summed over a sample and averaged over samples."""
    made, mean, log_variance = output
    error = (made - pixels).square().sum(1)
    return (error + 0.3 * divergence(mean, log_variance)).mean()


def explained(model: nn.Module, data: Data) -> float:
    """Share of the variance of held-out pixels that reconstructions explain."""
    made = model(data.test_inputs)[0]
    rest = (made - data.test_targets).square().mean()
    return float(1 - rest / data.test_targets.var(0).mean())


@program
def digits_vae() -> Plan:
    """More than half of the variance of the pixels comes back."""
    return Plan(
        name="digits_vae",
        task="reconstruction",
        data=data,
        build=Vae,
        shape={"width": 96, "code": 12, "activation": nn.ReLU, "output": None},
        loss=loss,
        optimizer=Adam,
        settings={"lr": 3e-3},
        measure=explained,
        mark=0.5,
        steps=300,
        batch=64,
        evaluate_every=60,
    )
