"""A training program as a plan, whose every part can be exchanged on its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

# Looser than nn.Parameter, because optimizers take any tensor.
Params = Iterable[Any]
Edit = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True, slots=True)
class Data:
    """What a program trains on and what it is judged by."""

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


def call(model: nn.Module, inputs: Tensor) -> Any:  # noqa: ANN401 - whatever the model gives
    """The forward pass of a program that does nothing special."""
    return model(inputs)


def own_parameters(model: nn.Module) -> Params:
    """What an optimizer is usually given."""
    return model.parameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that makes a training program. Faults and variations exchange one part.

    Attributes:
        name: The program.
        task: `classes`, `binary`, `quantity`, `reconstruction`, `text` or `generation`.
        data: Makes the data; everything random in it follows torch's global generator.
        build, shape: Makes the model, from these keyword arguments.
        loss: Of what the model gives and the targets.
        optimizer, settings: Class and keyword arguments.
        measure: The program's own metric of a trained model.
        mark: The metric from which the program counts as learnt.
        rising: Whether a larger metric is better.
        steps, batch: Optimizer steps and samples per backward pass.
        accumulate: Backward passes per optimizer step.
        shuffle: Whether samples come in random order.
        schedule: Makes the learning rate scheduler.
        schedule_period: Optimizer steps between two steps of the scheduler.
        clip: Gradient norm above which gradients are clipped.
        evaluate_every: Steps between two evaluations in the course of training.
        zeroes, updates: Whether gradients are zeroed, and whether the optimizer steps.
        trains_in_eval: Never leaves evaluation mode; `returns_to_train` only after the
            first evaluation.
        evaluates_in_eval: Whether evaluation calls `model.eval()`.
        trained: The parameters given to the optimizer.
        data_edits, model_edits, batch_edits: Applied in order; the latter to each batch.
        forward: The forward pass.
        precision: A context that the forward pass and the loss run in.
        float16: Whether torch can run it in float16 on a CPU.
        averages: Whether accumulated gradients are averaged.
        tokens: Whether the inputs are codes of words or letters.
        stacked: Whether the model is a stack of `depth` plain layers.
        scaled: Whether a gradient scaler is used, and `unscales` whether before clipping.
        pretraining: A plan whose trained weights this one starts from.
        loop: Runs the plan instead of the usual loop.
    """

    name: str
    task: str
    data: Callable[[], Data]
    build: Callable[..., nn.Module]
    shape: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any, Tensor], Tensor]
    optimizer: type[Optimizer]
    settings: Mapping[str, Any]
    measure: Callable[[nn.Module, Data], float]
    mark: float
    rising: bool = True
    steps: int = 150
    batch: int = 32
    accumulate: int = 1
    shuffle: bool = True
    schedule: Callable[[Optimizer], LRScheduler] | None = None
    schedule_period: int = 1
    clip: float | None = None
    evaluate_every: int = 0
    zeroes: bool = True
    updates: bool = True
    trains_in_eval: bool = False
    returns_to_train: bool = True
    evaluates_in_eval: bool = True
    trained: Callable[[nn.Module], Params] = own_parameters
    data_edits: tuple[Callable[[Data], Data], ...] = ()
    model_edits: tuple[Edit, ...] = ()
    batch_edits: tuple[Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]], ...] = ()
    forward: Callable[[nn.Module, Tensor], Any] = call
    precision: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    float16: bool = True
    averages: bool = True
    tokens: bool = False
    stacked: bool = False
    scaled: bool = False
    unscales: bool = True
    pretraining: Plan | None = None
    loop: Callable[[Plan, nn.Module, Data], Course] | None = None

    def but(self, **changes: Any) -> Plan:  # noqa: ANN401 - the fields themselves are typed
        """The plan with some parts exchanged."""
        return replace(self, **changes)

    def shaped(self, **changes: Any) -> Plan:  # noqa: ANN401
        """The plan with other arguments of its model."""
        return self.but(shape={**self.shape, **changes})

    def set(self, **changes: Any) -> Plan:  # noqa: ANN401
        """The plan with other settings of its optimizer."""
        return self.but(settings={**self.settings, **changes})

    def edited(self, edit: Edit) -> Plan:
        """The plan with one more change of the model that it builds."""
        return self.but(model_edits=(*self.model_edits, edit))

    def passes(self, metric: float) -> bool:
        """Whether a metric satisfies the program; NaN never does."""
        return metric >= self.mark if self.rising else metric <= self.mark


@dataclass(frozen=True, slots=True)
class Course:
    """How a training went.

    Attributes:
        model, data: As they were at the end.
        metric: The program's own, as the program itself measures it.
        losses: Training loss by step.
        held: Loss on held-out data by evaluation.
    """

    model: nn.Module
    data: Data
    metric: float
    losses: tuple[float, ...] = ()
    held: tuple[float, ...] = ()
