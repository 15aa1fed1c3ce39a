"""Changes of a model that a program has built: its weights, and what is around a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)
RECURRENT = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)


def layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Linear and convolutional layers by name, in order of definition."""
    return [(n, x) for n, x in model.named_modules() if isinstance(x, LAYERS)]


def weights(model: nn.Module) -> Iterator[nn.Parameter]:
    """The weight matrices and kernels of layers; not those of embeddings."""
    for module in model.modules():
        if isinstance(module, (*LAYERS, *RECURRENT)):
            yield from (p for p in module.parameters(recurse=False) if p.dim() >= 2)


def put(model: nn.Module, name: str, new: nn.Module) -> None:
    """Put another module in the place of the one of that name."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, new)


class Stage(nn.Module):
    """A part of a model with one more operation behind it."""

    def __init__(self, body: nn.Module, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        """What the part gives, and then the operation."""
        return self.after(self.body(x))


class Quiet(nn.Module):
    """A part of a model that runs without gradient recording."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """What the part gives."""
        with torch.no_grad():
            out: Tensor = self.body(x)
        return out


class Listed(nn.Module):
    """A part of a model kept in a plain Python list, where `parameters()` does not look."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.parts = [body]

    def forward(self, x: Tensor) -> Tensor:
        """What the parts give, one after the other."""
        for part in self.parts:
            x = part(x)
        return x
