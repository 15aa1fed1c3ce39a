"""Data that ships with scikit-learn and with Python, and metrics on it."""

from __future__ import annotations

import functools
import importlib
import inspect

import torch
from torch import Tensor, nn

from neuraldbg.testing.plan import Data

HELD_OUT = 0.2
MODULES = ("argparse", "ast", "dataclasses", "inspect", "pathlib", "statistics", "textwrap")


def split(inputs: Tensor, targets: Tensor) -> Data:
    """A random split into data to train on and data to be judged by."""
    order = torch.randperm(len(inputs))
    cut = int(len(inputs) * HELD_OUT)
    test, train = order[:cut], order[cut:]
    return Data(inputs[train], targets[train], inputs[test], targets[test])


@functools.cache
def _bundled(name: str) -> tuple[Tensor, Tensor]:
    from sklearn import datasets

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets)


def standardised(inputs: Tensor) -> Tensor:
    """Columns of mean 0 and deviation 1."""
    return (inputs - inputs.mean(0)) / inputs.std(0)


def digits() -> Data:
    """Handwritten digits as rows of 64 pixels from -1 to 1, with their values."""
    inputs, targets = _bundled("digits")
    return split(inputs / 8 - 1, targets)


def pictures() -> Data:
    """Handwritten digits as images of one channel."""
    data = digits()
    shape = (-1, 1, 8, 8)
    return Data(
        data.inputs.view(shape),
        data.targets,
        data.test_inputs.view(shape),
        data.test_targets,
    )


def diabetes() -> Data:
    """Ten measurements of patients and the progression of their disease, standardised."""
    inputs, targets = _bundled("diabetes")
    return split(standardised(inputs), standardised(targets.float()[:, None]))


def tumours() -> Data:
    """Thirty standardised measurements of tumours, and whether they are benign."""
    inputs, targets = _bundled("breast_cancer")
    return split(standardised(inputs), targets.float()[:, None])


def source_text(length: int) -> Tensor:
    """The first characters of some modules of the standard library, as codes under 96."""
    text = "".join(inspect.getsource(importlib.import_module(name)) for name in MODULES)
    return torch.tensor([min(max(ord(c) - 31, 0), 95) for c in text[:length]])


def windows(codes: Tensor, width: int, count: int) -> Data:
    """Random stretches of a text, each with the same stretch one character further."""
    cut = int(len(codes) * (1 - HELD_OUT))
    train = torch.randint(0, cut - width - 1, (count,))
    test = torch.randint(cut, len(codes) - width - 1, (count // 8,))
    offset = torch.arange(width)
    train, test = train[:, None] + offset, test[:, None] + offset
    return Data(codes[train], codes[train + 1], codes[test], codes[test + 1])


def accuracy(model: nn.Module, data: Data) -> float:
    """Share of held-out samples whose class is found."""
    right = model(data.test_inputs).argmax(-1) == data.test_targets
    return float(right.float().mean())


def balanced_accuracy(model: nn.Module, data: Data) -> float:
    """Mean over the two classes of the share that is found, by the sign of the output."""
    said, true = model(data.test_inputs) > 0, data.test_targets > 0.5
    shares = [(said == true)[true == side].float().mean() for side in (False, True)]
    return float(torch.stack(shares).mean())


def determination(model: nn.Module, data: Data) -> float:
    """Share of the variance of held-out targets that is explained."""
    rest = (model(data.test_inputs) - data.test_targets).square().mean()
    return float(1 - rest / data.test_targets.var(correction=0))
