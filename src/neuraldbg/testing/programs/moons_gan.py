"""A generator and a critic that play against each other over a cloud of points."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam

from neuraldbg.testing.loop import batches, measured
from neuraldbg.testing.plan import Course, Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import split

NOISE = 4


class Game(nn.Module):
    """The two players."""

    def __init__(self, width: int = 48, activation: type[nn.Module] | None = nn.LeakyReLU) -> None:
        super().__init__()
        act = activation or nn.Identity
        self.generator = nn.Sequential(
            nn.Linear(NOISE, width), act(), nn.Linear(width, width), act(), nn.Linear(width, 2)
        )
        self.critic = nn.Sequential(
            nn.Linear(2, width), act(), nn.Linear(width, width), act(), nn.Linear(width, 1)
        )

    def forward(self, noise: Tensor) -> Tensor:
        """Points out of noise."""
        points: Tensor = self.generator(noise)
        return points


def data() -> Data:
    """Points along half a circle."""
    angle = torch.rand(2000) * torch.pi
    points = torch.stack((angle.cos(), angle.sin()), 1) + 0.05 * torch.randn(2000, 2)
    return split(points, points)


def play(plan: Plan, game: nn.Module, data: Data) -> Course:
    """Alternate between critic and generator.

    While they play, each is a model of its own, as it is in most scripts.
    """
    generator, critic = game.get_submodule("generator"), game.get_submodule("critic")
    del game.generator, game.critic
    judge = plan.optimizer(list(plan.trained(critic)), **plan.settings)
    maker = plan.optimizer(list(plan.trained(generator)), **plan.settings)
    schedules = [plan.schedule(o) for o in (judge, maker)] if plan.schedule else []
    source = batches(plan, len(data))
    losses = []
    for step in range(plan.steps):
        real = data.inputs[next(source)]
        for edit in plan.batch_edits:
            real, _ = edit(step, real, real)
        fake = generator(torch.randn(len(real), NOISE))
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        told = plan.loss(critic(real), ones) + plan.loss(critic(fake.detach()), zeros)
        losses.append(_update(plan, judge, critic, told))
        _update(plan, maker, generator, plan.loss(critic(fake), ones))
        for schedule in schedules:
            schedule.step()
    game.generator, game.critic = generator, critic
    return Course(game, data, measured(plan, game, data), tuple(losses))


def _update(plan: Plan, optimizer: torch.optim.Optimizer, model: nn.Module, loss: Tensor) -> float:
    if plan.zeroes:
        optimizer.zero_grad()
    loss.backward()
    if plan.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
    if plan.updates:
        optimizer.step()
    return float(loss.detach())


def distance(model: nn.Module, data: Data) -> float:
    """Energy distance between generated and held-out points."""
    real = data.test_inputs
    fake = model(torch.randn(len(real), NOISE))
    apart, within, made = torch.cdist(real, fake), torch.cdist(real, real), torch.cdist(fake, fake)
    return float(2 * apart.mean() - within.mean() - made.mean())


@program
def moons_gan() -> Plan:
    """Generated points are about as far from real ones as real ones from each other."""
    return Plan(
        name="moons_gan",
        task="generation",
        data=data,
        build=Game,
        shape={"width": 48, "activation": nn.LeakyReLU},
        loss=F.binary_cross_entropy_with_logits,
        optimizer=Adam,
        settings={"lr": 2e-3, "betas": (0.0, 0.99)},
        measure=distance,
        mark=0.1,
        rising=False,
        steps=250,
        batch=64,
        loop=play,
    )
