"""Learning rates, changed at the step itself: no schedule can undo it."""

from __future__ import annotations

from typing import Any, Final

from torch.optim import Optimizer

from neuraldbg.torch.interventions import Action, Context, action

WARMUP_SHARE: Final = 0.1  # of the run; common practice for transformers is 1 to 10 %
WARMUP_LEAST: Final = 10  # steps


class _AtStep(Action):
    """Sets the rate for the time of a step and restores what the script sees."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._theirs: dict[int, list[Any]] = {}

    def rate(self, optimizer: Optimizer, group: int, lr: Any) -> Any:
        """The rate to use in place of the script's."""
        return lr

    def step_begins(self, optimizer: Optimizer) -> None:
        """Put our rates in place."""
        groups = optimizer.param_groups
        self._theirs[id(optimizer)] = [g.get("lr") for g in groups]
        for i, group in enumerate(groups):
            if "lr" in group:
                group["lr"] = self.rate(optimizer, i, group["lr"])
                self.applied += 1

    def step_ended(self, optimizer: Optimizer) -> None:
        """Give the script its rates back."""
        theirs = self._theirs.pop(id(optimizer), ())
        for group, lr in zip(optimizer.param_groups, theirs, strict=False):
            if lr is not None:
                group["lr"] = lr


@action("lr_x0.1", factor=0.1)
@action("lr_x0.01", factor=0.01)
@action("lr_x10", factor=10.0)
@action("lr_x100", factor=100.0)
@action("lr_x1000", factor=1000.0)
@action("lr_x10000", factor=10000.0)
class Scale(_AtStep):
    """Multiplies every rate."""

    def __init__(self, context: Context, factor: float) -> None:
        super().__init__(context)
        self._factor = factor

    def rate(self, optimizer: Optimizer, group: int, lr: Any) -> Any:
        """The script's rate times the factor."""
        return lr * self._factor


@action("lr_hold_first", peak=False)
@action("lr_hold_peak", peak=True)
class Hold(_AtStep):
    """Holds the rate; the groups keep their proportions."""

    def __init__(self, context: Context, *, peak: bool) -> None:
        super().__init__(context)
        self._target = context.lr_peak if peak else context.lr_first
        self._first: dict[tuple[int, int], Any] = {}

    def rate(self, optimizer: Optimizer, group: int, lr: Any) -> Any:
        """The target, scaled to the group."""
        if self._target is None:
            return lr
        first = self._first.setdefault((id(optimizer), group), lr)
        leader = next(iter(self._first.values()))
        return self._target * (first / leader) if leader else self._target


@action("lr_warmup")
class WarmUp(_AtStep):
    """Raises the rate linearly from near 0."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._length = max(WARMUP_LEAST, round(WARMUP_SHARE * context.steps))
        self._steps: dict[int, int] = {}

    def step_begins(self, optimizer: Optimizer) -> None:
        """Count the step, then set the rate."""
        self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        super().step_begins(optimizer)

    def rate(self, optimizer: Optimizer, group: int, lr: Any) -> Any:
        """The script's rate times the share of the warm-up that is done."""
        return lr * min(1.0, self._steps[id(optimizer)] / self._length)
