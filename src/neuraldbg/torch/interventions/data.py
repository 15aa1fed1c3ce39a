"""The batches on their way into the model and the loss."""

from __future__ import annotations

import statistics
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from neuraldbg.torch.interventions import Action, Context, action
from neuraldbg.torch.interventions.patching import Inside, Operations, functions, replace
from neuraldbg.torch.succession import held

REGRESSION: Final = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
FAR: Final = 5.0  # times the median of what came before
BEFORE: Final = 5  # batches before any can be called an outlier
SHUFFLE_SEED: Final = 7
ENTRIES: Final = 8  # a slice of at least this many rows, of a tensor twice as long, is a batch


def _real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1


class _Inputs(Action):
    """Changes the floating-point tensors that a model is called with."""

    def model(self, model: nn.Module) -> None:
        """Hook the outermost module."""
        model.register_forward_pre_hook(self._enter, with_kwargs=True)

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        changed = tuple(self.change(i, x) if _real(x) else x for i, x in enumerate(args))
        return changed, {k: self.change(k, x) if _real(x) else x for k, x in kwargs.items()}

    def change(self, key: object, value: Tensor) -> Tensor:
        """The tensor to use in its place."""
        raise NotImplementedError


class _Statistics:
    """Mean and spread of the first batch, for each feature or channel."""

    def __init__(self, value: Tensor) -> None:
        dims = [d for d in range(value.dim()) if value.dim() < 2 or d != self._axis(value)]
        finite = torch.nan_to_num(value.detach().float(), 0.0, 0.0, 0.0)
        self.mean = finite.mean(dims, keepdim=True)
        spread = finite.std(dims, keepdim=True)
        self.spread = torch.where(spread > 0, spread, torch.ones_like(spread))

    @staticmethod
    def _axis(value: Tensor) -> int:
        """The dimension of the features: the channels of images, else the last."""
        return 1 if value.dim() >= 4 else value.dim() - 1

    def apply(self, value: Tensor) -> Tensor:
        """The standardised tensor."""
        return ((value - self.mean) / self.spread).to(value.dtype)


@action("standardise_input")
class StandardiseInput(_Inputs):
    """Inputs by the statistics of the first batch."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._known: dict[object, _Statistics] = {}

    def change(self, key: object, value: Tensor) -> Tensor:
        """Standardised."""
        if value.requires_grad or value.dim() < 2:
            return value
        self.applied += 1
        return self._known.setdefault((key, value.shape[1:]), _Statistics(value)).apply(value)


@action("fill_nonfinite")
class FillNonfinite(_Inputs):
    """Zero in place of NaN and infinity."""

    patient = True

    def begin(self) -> None:
        """Come before the targets' losses, too."""
        for name in (*REGRESSION, "binary_cross_entropy", "binary_cross_entropy_with_logits"):
            replace(functional, name, self._loss)

    def _loss(self, original: Any) -> Any:
        def loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
            return original(input, self.change("target", target), *args, **kwargs)

        return loss

    def change(self, key: object, value: Tensor) -> Tensor:
        """Filled."""
        if value.requires_grad or bool(torch.isfinite(value).all()):
            return value
        self.applied += 1
        return torch.nan_to_num(value, 0.0, 0.0, 0.0)


@action("standardise_targets")
class StandardiseTargets(Action):
    """Regression targets by the statistics of the first batch."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = Inside()
        self._known: _Statistics | None = None

    def begin(self) -> None:
        """Come before losses, and before differences outside the model."""
        losses = [getattr(functional, name) for name in REGRESSION]
        differences = functions("sub", "subtract", "__sub__", "__rsub__")
        Operations({f: self._change for f in (*losses, *differences)}).install()

    def model(self, model: nn.Module) -> None:
        """Leave differences inside the model alone."""
        self._inside.watch(model)

    def _change(self, func: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._inside.depth and _real(a) and _real(b):
            if a.requires_grad and not b.requires_grad:
                b = self._standard(b)
            elif b.requires_grad and not a.requires_grad:
                a = self._standard(a)
        return func(a, b, *args, **kwargs)

    def _standard(self, target: Tensor) -> Tensor:
        if self._known is None:
            self._known = _Statistics(target)
        self.applied += 1
        return self._known.apply(target)


@action("skip_outliers")
class SkipOutliers(_Inputs):
    """Drops the gradients of batches unlike those before."""

    patient = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sizes: list[float] = []
        self._losses: list[float] = []
        self._far = False

    def change(self, key: object, value: Tensor) -> Tensor:
        """Look only."""
        if torch.is_grad_enabled() and not value.requires_grad:
            self._judge(self._sizes, float(value.abs().max()))
        return value

    def backward_begins(self, tensors: list[Tensor]) -> None:
        """Look at the loss."""
        if tensors and tensors[0].numel() == 1:
            self._judge(self._losses, abs(float(tensors[0].detach())))

    def _judge(self, before: list[float], size: float) -> None:
        if len(before) >= BEFORE and not size <= FAR * statistics.median(before):
            self._far = True
        else:
            before.append(size)
            del before[:-100]

    def step_begins(self, optimizer: Optimizer) -> None:
        """Leave the optimizer without gradients."""
        if self._far:
            self._far = False
            self.applied += 1
            for p in held(optimizer):
                p.grad = None


@action("class_weights")
class ClassWeights(Action):
    """Weights by the inverse of the frequency seen so far."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._counts: dict[str, Tensor] = {}

    def begin(self) -> None:
        """Come before the classification losses."""
        replace(functional, "cross_entropy", lambda f: self._loss(f, self._classes))
        replace(
            functional, "binary_cross_entropy_with_logits", lambda f: self._loss(f, self._binary)
        )

    def _loss(self, original: Any, weigh: Any) -> Any:
        def loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not args:
                kwargs |= weigh(input, target)
            return original(input, target, *args, **kwargs)

        return loss

    def _classes(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        if target.is_floating_point() or input.dim() < 2:
            return {}
        counts = torch.bincount(target.flatten().clamp_min(0), minlength=input.shape[1])
        seen = self._seen("classes", counts).clamp_min(1)
        return {"weight": (seen.sum() / (seen * len(seen))).to(input.dtype)}

    def _binary(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        counts = torch.stack([(target < 0.5).sum(), (target >= 0.5).sum()])
        no, yes = self._seen("binary", counts).clamp_min(1)
        return {"pos_weight": (no / yes).to(input.dtype)}

    def _seen(self, key: str, counts: Tensor) -> Tensor:
        self.applied += 1
        before = self._counts.get(key)
        self._counts[key] = counts if before is None else before + counts
        return self._counts[key]


@action("shuffle")
class Shuffle(Action):
    """Random order in loaders, and in batches sliced from whole tensors."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = Inside()
        self._orders: dict[int, Tensor] = {}

    def begin(self) -> None:
        """Change what loaders are made with, and slicing outside the model."""
        replace(DataLoader, "__init__", self._init)
        Operations({Tensor.__getitem__: self._rows}).install()

    def model(self, model: nn.Module) -> None:
        """Leave slices inside the model alone."""
        self._inside.watch(model)

    def _init(self, original: Any) -> Any:
        def init(loader: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
            fixed = len(args) > 1 or kwargs.get("sampler") or kwargs.get("batch_sampler")
            if not (fixed or kwargs.get("shuffle") or isinstance(dataset, IterableDataset)):
                kwargs.pop("shuffle", None)
                kwargs["sampler"] = RandomSampler(dataset, generator=self._generator())
                self.applied += 1
            original(loader, dataset, *args, **kwargs)

        return init

    def _rows(self, func: Any, value: Tensor, index: Any) -> Any:
        rows = len(value) if value.dim() else 0
        batch = isinstance(index, slice) and index.step is None and not value.requires_grad
        if self._inside.depth or not batch:
            return func(value, index)
        taken = range(rows)[index]
        if not ENTRIES <= len(taken) <= rows // 2:
            return func(value, index)
        if rows not in self._orders:
            self._orders[rows] = torch.randperm(rows, generator=self._generator())
        self.applied += 1
        return value.index_select(0, self._orders[rows][index].to(value.device))

    @staticmethod
    def _generator() -> torch.Generator:
        return torch.Generator().manual_seed(SHUFFLE_SEED)
