"""The loss as it is met, step after step: its value, its make-up, what it reaches."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Channel, Kind, LossFact, TensorFact
from neuraldbg.torch import data
from neuraldbg.torch import loss as graph
from neuraldbg.torch.hazards import hazards
from neuraldbg.torch.streams import Stream

# A loss this many times its running level, or not finite, is worth a closer look.
SUSPICIOUS: Final = 3.0
LEVEL: Final = 0.05  # weight of the newest loss in the running level
READS: Final = 25  # the loss graph is read at every due step up to here, then seldom
SELDOM: Final = 10
REACH_READS: Final = 3  # the graph is walked to the parameters this often, then seldom


class LossSide:
    """Follows the losses of one loop.

    Args:
        steps, looks: Where readings go.
        event: Keeps an event in the run file.
        meet: Called with the parameters that a loss reaches.
    """

    def __init__(
        self,
        steps: Stream,
        looks: Stream,
        event: Callable[[SemanticEvent], None],
        meet: Callable[[list[Tensor]], None],
    ) -> None:
        self.facts: dict[int, LossFact] = {}
        self.waiting: list[Tensor] = []
        self.scaler: weakref.ref[Any] | None = None
        self._steps = steps
        self._looks = looks
        self._event = event
        self._meet = meet
        self._level: float | None = None
        self._pending: LossFact | None = None
        self._reads = 0
        self._prediction: TensorFact | None = None
        self._unscaled: tuple[int, Tensor] | None = None
        self._hazards: set[str] = set()

    # -- the forward side ------------------------------------------------------------

    def predicted(self, value: Tensor) -> None:
        """The model's output on a due step."""
        self._prediction = data.tensor_fact(value)
        for metric, number in data.prediction_numbers(value).items():
            self._looks.put(Channel(Kind.LOSS, "prediction", metric), number)

    def batch(self, name: str, value: Tensor) -> None:
        """An input or target on a due step."""
        for metric, number in data.batch_numbers(value).items():
            self._looks.put(Channel(Kind.BATCH, name, metric), number)

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        """A loss scaler multiplied a loss."""
        self._unscaled = (id(result), loss.detach())
        self.scaler = weakref.ref(scaler)

    def scale(self) -> float | None:
        """The factor of the loss scaler, if one is at work; waits for the device."""
        scaler = None if self.scaler is None else self.scaler()
        return None if scaler is None else float(scaler.get_scale())

    # -- the backward side -----------------------------------------------------------

    def value(self, loss: Tensor) -> Tensor:
        """The loss as the user means it: without loss scaling, as one number."""
        if self._unscaled is not None and self._unscaled[0] == id(loss):
            loss = self._unscaled[1]
        value = loss.detach()
        return value.reshape(()) if value.numel() == 1 else value.float().mean()

    def read(self, loss: Tensor, step: int) -> None:
        """Read the graph of a loss before its backward pass, on a due step."""
        self._reads += 1
        if self._reads > READS and self._reads % SELDOM:
            return
        self._pending = graph.read_loss(loss, 0, self._prediction)
        target = graph.target_of(loss)
        if target is not None:
            self.batch("target", target)
        self._find_hazards(loss, step)
        if loss.grad_fn is not None and (self._reads <= REACH_READS or self._reads > READS):
            self._meet(graph.leaves(loss.grad_fn))

    def _find_hazards(self, loss: Tensor, step: int) -> None:
        for operation, trouble in hazards(loss):
            if operation in self._hazards:
                continue
            self._hazards.add(operation)
            name = operation.lower()
            self._event(
                SemanticEvent(
                    id=f"hazard-{name}-{step}",
                    kind=EventType.NONFINITE,
                    where=f"loss:{name}",
                    step=step,
                    before="finite",
                    after="hazard",
                    metadata={"operation": name, "trouble": trouble},
                )
            )

    # -- the optimizer's side ----------------------------------------------------------

    def settle(self, index: int) -> float | None:
        """The losses since the last step belong to optimizer `index`; their mean."""
        if self._pending is not None:
            known = self.facts.get(index)
            wide = self._pending.broadcast or (known.broadcast if known else None)
            self.facts[index] = replace(self._pending, index=index, broadcast=wide)
            self._pending = None
        if not self.waiting:
            return None
        number = float(torch.stack([x.float() for x in self.waiting]).mean())
        self.waiting.clear()
        name = "loss" if index == 0 else f"loss.{index}"
        self._steps.put(Channel(Kind.LOSS, name, m.L_VALUE), number)
        return number

    def suspicious(self, value: float) -> bool:
        """Whether a loss is not finite or far above its running level."""
        if not math.isfinite(value):
            return True
        if self._level is None:
            self._level = abs(value)
        jump = abs(value) > SUSPICIOUS * self._level
        self._level += LEVEL * (abs(value) - self._level)
        return jump
