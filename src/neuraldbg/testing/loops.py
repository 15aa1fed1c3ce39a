"""Training loops that differ from the usual one, and are as healthy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import LBFGS

from neuraldbg.testing.loop import Training
from neuraldbg.testing.plan import Course, Data, Plan


class TwoOptimizers(Training):
    """One optimizer for the first half of the parameters, one for the rest."""

    def __init__(self, plan: Plan, model: nn.Module, data: Data) -> None:
        every = list(model.parameters())
        middle = len(every) // 2
        super().__init__(plan.but(trained=lambda _: every[:middle]), model, data)
        self.second = plan.optimizer(every[middle:], **plan.settings)

    def update(self) -> None:
        """Both step, one after the other."""
        super().update()
        self.second.step()
        self.second.zero_grad()


class StopsEarly(Training):
    """Ends when the held-out loss has not improved for some evaluations."""

    PATIENCE = 3

    def done(self) -> bool:
        """Whether the last evaluations brought nothing new."""
        recent = self.held[-self.PATIENCE :]
        before = self.held[: -self.PATIENCE]
        return bool(before) and min(recent) >= min(before)


class FullBatch(Training):
    """L-BFGS on all the data at once, with a closure."""

    def __init__(self, plan: Plan, model: nn.Module, data: Data) -> None:
        rows = plan.but(
            optimizer=LBFGS, settings={"lr": 1.0, "max_iter": 5, "line_search_fn": "strong_wolfe"}
        )
        super().__init__(rows, model, data)

    def step(self, step: int, source: Iterator[Tensor]) -> float:
        """One step, in which the loss is evaluated several times."""

        def closure() -> Any:  # noqa: ANN401 - torch says float, and means a tensor, too
            self.optimizer.zero_grad()
            output = self.plan.forward(self.model, self.data.inputs)
            loss = self.plan.loss(output, self.data.targets)
            loss.backward()
            return loss.detach()

        return float(self.optimizer.step(closure))


def two_optimizers(plan: Plan, model: nn.Module, data: Data) -> Course:
    """Run with two optimizers."""
    return TwoOptimizers(plan, model, data).run()


def stops_early(plan: Plan, model: nn.Module, data: Data) -> Course:
    """Run until it no longer pays."""
    return StopsEarly(plan, model, data).run()


def full_batch(plan: Plan, model: nn.Module, data: Data) -> Course:
    """Run with L-BFGS."""
    return FullBatch(plan, model, data).run()
