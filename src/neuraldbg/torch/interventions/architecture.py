"""Changes inside the model, made by hooks on module boundaries and on operations."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from neuraldbg.torch.interventions import Action, Context, action, named
from neuraldbg.torch.interventions.patching import Inside, Operations, functions, replace, trains

DROPOUT: Final = 0.1
# Attention logits beyond this are as good as one-hot; Gemma 2 caps them at 50, and a tenth
# of the way there softmax is not sharp yet.
LOGIT_BOUND: Final = 10.0
MASKED: Final = -1e4  # logits below are masks, not scores
KERNELS: Final = (nn.modules.conv._ConvNd, nn.Linear)


class _Hidden(Action):
    """Changes the output of every hidden layer."""

    def model(self, model: nn.Module) -> None:
        """Hook the layers; inside a compiled model the hooks become part of it."""
        for module in named(model, self.context.hidden):
            if isinstance(module, KERNELS):
                module.register_forward_hook(lambda module, args, out: self.change(out))
                self.applied += 1

    def change(self, out: Tensor) -> Tensor:
        """The new output."""
        raise NotImplementedError


@action("normalise_layers")
class Normalise(_Hidden):
    """Zero mean and unit variance over each sample's features."""

    def change(self, out: Tensor) -> Tensor:
        """Normalised over all features of an image, over the last dimension otherwise."""
        shape = out.shape[1:] if out.dim() == 4 else out.shape[-1:]
        return functional.layer_norm(out, shape)


@action("insert_relu")
class InsertRelu(_Hidden):
    """ReLU behind the layer."""

    def change(self, out: Tensor) -> Tensor:
        """Rectified."""
        return functional.relu(out)


@action("relu_activations")
class ReluActivations(Action):
    """ReLU in place of sigmoid and tanh, but for the last operation of the model."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = Inside()
        self._calls = self._last = 0

    def begin(self) -> None:
        """Replace them in eager code."""
        table = {f: self._change for f in functions("sigmoid", "tanh")}
        Operations(table).install()

    def model(self, model: nn.Module) -> None:
        """Count the calls of each pass: the last one of the first pass is the output's."""
        model.register_forward_pre_hook(self._enter)
        self._inside.watch(model)
        model.register_forward_hook(self._leave)

    def _enter(self, *_: Any) -> None:
        self._calls = 0
        self._final: Tensor | None = None

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        # The output is the activation's own result: then it belongs to the loss.
        self._last = self._calls if out is self._final else 0

    def _change(self, func: Any, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self._inside.depth:
            return func(value, *args, **kwargs)
        self._calls += 1
        if self._calls == self._last:
            self._final = func(value, *args, **kwargs)
            return self._final
        self.applied += 1
        self._final = functional.relu(value)
        return self._final


@action("group_norm")
class GroupNorm(Action):
    """Batch normalisation by the statistics of each sample."""

    def model(self, model: nn.Module) -> None:
        """Replace what every batch normalisation computes."""
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                # In its place and not behind it: it refuses a batch of one sample.
                vars(module)["forward"] = functools.partial(_normalised, module)
                self.applied += 1


def _normalised(module: Any, input: Tensor) -> Tensor:
    return functional.group_norm(input, 1, module.weight, module.bias)


@action("dropout_0.1")
class Dropout(Action):
    """Caps the probability of every dropout."""

    def begin(self) -> None:
        """Replace the functions, which the modules call, too."""

        def make(original: Any) -> Any:
            def dropout(input: Tensor, p: float = 0.5, *args: Any, **kwargs: Any) -> Any:
                self.applied += p > DROPOUT
                return original(input, min(p, DROPOUT), *args, **kwargs)

            return dropout

        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"):
            replace(functional, name, make)


@action("bounded_attention")
class BoundedAttention(Action):
    """Keeps attention from getting arbitrarily sharp."""

    def begin(self) -> None:
        """Bound the logits, or the queries and keys where logits are not to be had."""
        softmax = {f: self._softmax for f in functions("softmax")}
        fused = functional.scaled_dot_product_attention
        Operations({**softmax, fused: self._attend}).install()

    def _softmax(self, func: Any, logits: Tensor, *args: Any, **kwargs: Any) -> Any:
        if logits.dim() >= 3 and trains(logits):
            self.applied += 1
            bounded = LOGIT_BOUND * torch.tanh(logits / LOGIT_BOUND)
            logits = torch.where(logits < MASKED, logits, bounded)
        return func(logits, *args, **kwargs)

    def _attend(
        self,
        func: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        self.applied += 1
        size = query.shape[-1:]
        query, key = functional.layer_norm(query, size), functional.layer_norm(key, size)
        return func(query, key, value, *args, **kwargs)
