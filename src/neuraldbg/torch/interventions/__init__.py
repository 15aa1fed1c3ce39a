"""The part of the interventions that acts on a training process.

Each action has the name of its declaration in `neuraldbg.experiments.interventions` and
lives in the file of the same family. It listens at the boundaries that the monitor owns,
meets models before their first forward pass, and says whether it found anything to change.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn
from torch.optim import Optimizer

from neuraldbg.torch.boundaries import Listener
from neuraldbg.torch.compile import unwrap
from neuraldbg.torch.discover import owners
from neuraldbg.torch.succession import held


@dataclass(frozen=True, slots=True)
class Context:
    """What the run file knows that an action may need.

    Attributes:
        layers: Modules with weights, in order of execution.
        called: All modules that ran, in order of execution.
        lr_first, lr_peak: The first and the highest rate of the first group.
        steps: Length of the recorded run.
        began: The first step of the training that fails, where several follow one another.
    """

    layers: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    lr_first: float | None = None
    lr_peak: float | None = None
    steps: int = 0
    began: int = 0

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Context:
        """From plain data, as JSON keeps it."""
        lists: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in known.items()
        }
        return cls(**lists)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The layers but the last."""
        return self.layers[:-1]


class Action(Listener):
    """Base of all actions; override what is needed.

    Args:
        context: What is known of the run.

    Attributes:
        applied: How often something was changed.
        patient: Whether its occasion may come late in a run, such as a bad batch.
    """

    patient: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.applied = 0
        self._met: list[nn.Module] = []

    def begin(self) -> None:
        """Torch is imported; the script has not used it yet."""

    def model(self, model: nn.Module) -> None:
        """A model meets the loop, before its first forward pass wherever possible."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Meet the models that the optimizer is to train."""
        for model in owners(held(optimizer)):
            self.meet(model)

    def compiling(self, target: object, backend: str | None) -> None:
        """Meet a model that is about to be compiled, since hooks come too late afterwards."""
        if isinstance(target, nn.Module):
            self.meet(unwrap(target))

    def meet(self, model: nn.Module) -> None:
        """Meet a model once."""
        if not any(known is model for known in self._met):
            self._met.append(model)
            self.model(model)


_Make = Callable[[Context], Action]
ACTIONS: dict[str, _Make] = {}


def action(name: str, **settings: Any) -> Callable[[type[Action]], type[Action]]:
    """Register an action under the name of its declaration."""

    def register(kind: type[Action]) -> type[Action]:
        ACTIONS[name] = lambda context: kind(context, **settings)
        return kind

    return register


def make(name: str, context: Context) -> Action:
    """The action of that name.

    Raises:
        KeyError: No family declares it.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return ACTIONS[name](context)


def ear_of(action: Action) -> Listener:
    """What is to listen for an action, which begins with the training that fails."""
    from neuraldbg.torch.interventions.later import Later

    return Later(action) if action.context.began else action


def named(model: nn.Module, names: tuple[str, ...]) -> list[nn.Module]:
    """The modules of these names that the model has."""
    known = dict(model.named_modules())
    return [known[name] for name in names if name in known]
