"""The loss as it is met, step after step: its value, its make-up, what it reaches."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from neuraldbg.core import metrics as m
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Channel, Kind, LossFact, TensorFact
from neuraldbg.torch import attention, data
from neuraldbg.torch import loss as graph
from neuraldbg.torch.delay import Delayed, Late
from neuraldbg.torch.hazards import hazards
from neuraldbg.torch.streams import Stream

# A loss this many times its running level, or not finite, is worth a closer look.
SUSPICIOUS: Final = 3.0
LEVEL: Final = 0.05  # weight of the newest loss in the running level
READS: Final = 25  # the loss graph is read at every due step up to here, then seldom
SELDOM: Final = 10
# Time for guarding against non-finite operations: seconds at the start, and a share after.
ALLOWANCE: Final = 0.5
SHARE: Final = 0.003
REACH_READS: Final = 3  # the graph is walked to the parameters this often, then seldom


class LossSide:
    """Follows the losses of one loop.

    Args:
        steps, looks: Where readings go.
        event: Keeps an event in the run file.
        meet: Called with the parameters that a loss reaches.

    Attributes:
        facts: What each optimizer's loss is made of.
        waiting: Losses met since the last step.
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
        self._aside: list[Tensor] = []
        self._steps = steps
        self._looks = looks
        self._event = event
        self._meet = meet
        self._level: float | None = None
        self._pending: LossFact | None = None
        self._reads = 0
        self._prediction: TensorFact | None = None
        self._output: Tensor | None = None  # held from forward to backward, where it lives anyway
        self._scaler: weakref.ref[Any] | None = None
        self._unscaled: list[tuple[weakref.ref[Tensor], Tensor]] = []
        self._late = Delayed()
        self._hazards: set[str] = set()
        self._started = time.perf_counter()
        self._guarding = 0.0

    # -- the forward side ------------------------------------------------------------

    def predicted(self, value: Tensor) -> None:
        """The model's output on a due step."""
        self._output = value.detach()
        if self._reads < READS or (self._reads + 1) % SELDOM == 0:
            self._prediction = data.tensor_fact(value)
        for metric, number in data.prediction_numbers(value).items():
            self._looks.put(Channel(Kind.LOSS, "prediction", metric), number)

    def batch(self, name: str, value: Tensor) -> None:
        """An input or target on a due step."""
        for metric, number in data.batch_numbers(value).items():
            self._looks.put(Channel(Kind.BATCH, name, metric), number)

    def scaled(self, scaler: Any, loss: Tensor, result: Tensor) -> None:  # noqa: ANN401
        """A loss scaler multiplied a loss."""
        self._unscaled.append((weakref.ref(result), loss))
        self._scaler = weakref.ref(scaler)

    @property
    def scaler(self) -> Any:  # noqa: ANN401 - any class with the methods of a GradScaler
        """The loss scaler, if one is at work."""
        return None if self._scaler is None else self._scaler()

    def scale(self) -> float | None:
        """The factor of the loss scaler, if one is at work; waits for the device."""
        scaler = self.scaler
        return None if scaler is None else float(scaler.get_scale())

    # -- the backward side -----------------------------------------------------------

    def note(self, loss: Tensor) -> None:
        """Keep the value of a loss until its optimizer steps."""
        if not loss.is_meta:
            self.waiting.append(self._value(loss))

    def set_aside(self, loss: Tensor, *, due: bool) -> None:
        """Keep a loss that gradients are asked of without a backward pass.

        It counts if none has a backward pass before the optimizer steps: the inner losses of
        meta-learning have one after them.
        """
        if loss.is_meta or loss.numel() != 1:
            return
        self._aside = [self._value(loss)]
        if due:
            self.read(loss)

    def forget(self) -> bool:
        """Drop the loss noted last; whether it was still there."""
        return self.waiting.pop() is not None if self.waiting else False

    def _meant(self, loss: Tensor) -> Tensor:
        """The loss as the user means it: without loss scaling."""
        return next((x for ref, x in self._unscaled if ref() is loss), loss)

    def _value(self, loss: Tensor) -> Tensor:
        loss = self._meant(loss).detach()
        return loss.reshape(()) if loss.numel() == 1 else loss.float().mean()

    def read(self, loss: Tensor) -> None:
        """Read the graph of a loss before its backward pass, on a due step."""
        self._reads += 1
        if self._reads > READS and self._reads % SELDOM:
            return
        loss = self._meant(loss)
        output, self._output = self._output, None
        self._pending = graph.read_loss(loss, 0, self._prediction, output)
        for i, peak in enumerate(attention.peaks(loss)):
            self._looks.put(Channel(Kind.LOSS, f"attention.{i}", m.L_ATTENTION_PEAK), peak)
        target = graph.target_of(loss, output)
        if target is not None:
            self.batch("target", target)
        if loss.grad_fn is not None and (self._reads <= REACH_READS or self._reads > READS):
            self._meet(graph.leaves(loss.grad_fn))

    def anew(self) -> None:
        """Another training begins: its losses are read like the first ones of the run."""
        self._reads = 0

    def look_out(self, loss: Tensor, step: int, *, due: bool) -> None:
        """Look for operations that make NaN or infinity, at every step that can pay for it.

        A logarithm meets its zero in one step, between two looks as likely as not; by the
        next step the weights are spoilt and the trace is gone. On a device this waits, so
        there only due steps are looked at.
        """
        if not due and loss.device.type != "cpu":
            return
        start = time.perf_counter()
        broken = (
            bool(self.waiting)
            and self.waiting[-1].device.type == "cpu"
            and not math.isfinite(self.waiting[-1])
        )
        if not broken and self._guarding > ALLOWANCE + SHARE * (start - self._started):
            return
        self._find_hazards(loss, step)
        self._guarding += time.perf_counter() - start

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

    def settle(self, index: int, step: int, *, closure: bool) -> float | None:
        """Give the losses since the last step to an optimizer.

        Args:
            index: The optimizer.
            step: The current step.
            closure: Whether they were met inside the optimizer's step. It may call its
                closure at many trial points, of which the first is the current one.

        Returns:
            Their mean; None if there is none, or if it comes later, from a device.
        """
        self._keep_fact(index)
        self._output = None
        if self._unscaled:
            self._unscaled = [(ref, x) for ref, x in self._unscaled if ref() is not None]
        aside, self._aside = self._aside, []
        self.waiting = self.waiting or aside
        if not self.waiting:
            return None
        losses, self.waiting = self.waiting[:1] if closure else self.waiting, []
        channel = Channel(Kind.LOSS, f"loss.{index}" if index else "loss", m.L_VALUE)
        if any(x.device.type != "cpu" for x in losses):
            line = torch.stack([x.float().to(losses[-1].device) for x in losses])
            self._late.send(step, channel, line.mean())
            return None
        number = sum(map(float, losses)) / len(losses)
        self._steps.put(channel, number)
        return number

    def _keep_fact(self, index: int) -> None:
        if self._pending is not None:
            known = self.facts.get(index)
            wide = self._pending.broadcast or (known.broadcast if known else None)
            self.facts[index] = replace(self._pending, index=index, broadcast=wide)
            self._pending = None

    def arrived(self, *, wait: bool) -> Iterator[Late]:
        """Losses that have come from a device since: step, channel and value."""
        return self._late.arrived(wait=wait)

    def suspicious(self, value: float) -> bool:
        """Whether a loss is not finite or far above its running level."""
        if not math.isfinite(value):
            return True
        if self._level is None:
            self._level = abs(value)
        jump = abs(value) > SUSPICIOUS * self._level
        self._level += LEVEL * (abs(value) - self._level)
        return jump
