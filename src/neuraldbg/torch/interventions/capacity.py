"""More units where a model is narrowest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.torch.interventions import Action, Context, action
from neuraldbg.torch.interventions.initialisation import apart

# Sixteen times what the diagnosis calls narrow, and a common choice for small models.
WIDTH: Final = 64
LIKE: Final = 2  # a layer of less than this many times the narrowest width is widened with it

Kernel = nn.Linear | nn.modules.conv._ConvNd
PLAIN: Final = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# With one weight for each unit. Normalisation over the units would change what the old ones give.
PER_UNIT: Final = (nn.modules.batchnorm._BatchNorm, nn.PReLU)


@dataclass(frozen=True, slots=True)
class _Link:
    """A hidden layer, the layer that takes its output, and what lies between them.

    Attributes:
        giver, taker: The layers.
        between: Modules with one weight for each unit.
        spread: Inputs of the taker for each unit; the positions of an image that is flattened.
    """

    giver: Kernel
    taker: Kernel
    between: tuple[nn.Module, ...]
    spread: int


@action("widen")
class Widen(Action):
    """Adds units to the narrowest hidden layers.

    The parameters stay the same objects, so that the optimizer has them already, and the
    script's own activations act on the new units. What the new units give counts for nothing at
    first: the model computes the same until it is trained (as in Net2Net, Chen et al., 2016).
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._resized: set[int] = set()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Meet the models; what the optimizer has stored already takes their new shapes."""
        super().optimizer_made(optimizer)
        for p in (p for p in optimizer.state if id(p) in self._resized):
            for key, value in optimizer.state[p].items():
                if isinstance(value, Tensor) and value.dim() and value.shape != p.shape:
                    optimizer.state[p][key] = torch.full_like(p, float(value.flatten()[0]))

    def model(self, model: nn.Module) -> None:
        """Widen."""
        apart(self._widen, model)

    def _widen(self, model: nn.Module) -> None:
        known = dict(model.named_modules())
        order = [known[name] for name in self.context.called if name in known]
        links = list(_links(order))
        narrowest = min((_units(x.giver) for x in links), default=WIDTH)
        for link in links:
            width = _units(link.giver)
            if width < min(LIKE * narrowest, WIDTH):
                self._add(link, WIDTH - width)
                self.applied += 1

    def _add(self, link: _Link, units: int) -> None:
        self._grow(link.giver, units, 0)
        for module in link.between:
            self._grow_unit_weights(module, units)
        self._grow(link.taker, 0, units * link.spread)

    def _grow(self, layer: Kernel, units: int, inputs: int) -> None:
        weight = layer.weight
        width, given = weight.shape[0] + units, weight.shape[1] + inputs
        larger = weight.new_zeros(width, given, *weight.shape[2:])
        larger[: len(weight), : weight.shape[1]] = weight
        if units:
            bound = 1 / math.sqrt(given * math.prod(weight.shape[2:]))
            nn.init.uniform_(larger[len(weight) :], -bound, bound)
        self._set(weight, larger)
        if layer.bias is not None and units:
            self._set(layer.bias, torch.cat([layer.bias, layer.bias.new_zeros(units)]))
        linear = isinstance(layer, nn.Linear)
        setattr(layer, "out_features" if linear else "out_channels", width)
        setattr(layer, "in_features" if linear else "in_channels", given)

    def _grow_unit_weights(self, module: nn.Module, units: int) -> None:
        start = {"weight": 1.0, "running_var": 1.0} | (
            {"weight": nn.PReLU().init} if isinstance(module, nn.PReLU) else {}
        )
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(module, name, None)
            if isinstance(value, Tensor):
                more = value.new_full((units,), start.get(name, 0.0))
                self._set(value, torch.cat([value, more]))
        counted = "num_parameters" if isinstance(module, nn.PReLU) else "num_features"
        setattr(module, counted, getattr(module, counted) + units)

    def _set(self, value: Tensor, larger: Tensor) -> None:
        value.data = larger
        value.grad = None
        self._resized.add(id(value))


def _links(order: Sequence[nn.Module]) -> Iterator[_Link]:
    """The hidden layers whose output is what the next layer takes, by its size.

    Args:
        order: The modules that were called, in order of execution.
    """
    owned = [(x, tuple(x.parameters(recurse=False))) for x in order]
    uses = Counter(id(p) for _, params in owned for p in params)
    giver: Any = None
    between: list[Any] = []
    module: Any
    for module, params in owned:
        if isinstance(module, PER_UNIT):
            between.append(module)
        elif params:
            alone = _is_plain(module) and all(uses[id(p)] == 1 for p in params)
            spread = _spread(giver, module) if alone and giver is not None else 0
            if spread and all(_size(x) in (1, _units(giver)) for x in between):
                yield _Link(giver, module, tuple(x for x in between if _size(x) > 1), spread)
            giver, between = module if alone else None, []


def _is_plain(module: Any) -> bool:
    if type(module) not in PLAIN or isinstance(module.weight, nn.UninitializedParameter):
        return False
    return isinstance(module, nn.Linear) or module.groups == 1


def _size(module: Any) -> int:
    return int(module.num_parameters if isinstance(module, nn.PReLU) else module.num_features)


def _units(layer: Any) -> int:
    return int(layer.weight.shape[0])


def _spread(giver: Kernel, taker: Any) -> int:
    """Inputs of the taker for each unit of the giver; 0 if they do not belong together."""
    units, inputs = _units(giver), int(taker.weight.shape[1])
    flattened = isinstance(taker, nn.Linear) and not isinstance(giver, nn.Linear)
    if flattened:
        return inputs // units if inputs % units == 0 else 0
    return int(type(giver) is type(taker) and units == inputs)
