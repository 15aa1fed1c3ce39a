"""A bag of words that tells which module of the standard library a line is from."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import zlib

import torch
from torch import Tensor, nn
from torch.optim import Adam

from neuraldbg.testing.plan import Data, Plan
from neuraldbg.testing.programs import program
from neuraldbg.testing.sources import accuracy, split

MODULES = ("argparse", "decimal", "statistics", "tarfile")
SOURCES = {"decimal": "_pydecimal"}
WORDS = 8
BUCKETS = 512


class WordBag(nn.Module):
    """The mean of word vectors, a hidden layer, and scores."""

    def __init__(
        self,
        width: int = 24,
        activation: type[nn.Module] | None = nn.ReLU,
        dropout: float = 0.2,
        output: type[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(BUCKETS, 32)
        self.hidden = nn.Linear(32, width)
        self.act = activation() if activation else nn.Identity()
        self.drop = nn.Dropout(dropout)
        self.scores = nn.Linear(width, len(MODULES))
        self.out = output(dim=1) if output is nn.Softmax else (output or nn.Identity)()

    def forward(self, words: Tensor) -> Tensor:
        """(batch, words) to scores of shape (batch, modules)."""
        x = self.words(words).mean(1)
        scores: Tensor = self.out(self.scores(self.drop(self.act(self.hidden(x)))))
        return scores


@functools.cache
def _lines() -> tuple[Tensor, Tensor]:
    """Hashed words of lines, and where each line is from."""
    rows, labels = [], []
    for label, name in enumerate(MODULES):
        text = inspect.getsource(importlib.import_module(SOURCES.get(name, name)))
        for line in text.splitlines():
            words = re.findall(r"\w+", line)[:WORDS]
            if len(words) >= 3:
                codes = [zlib.crc32(w.encode()) % BUCKETS for w in words]
                rows.append((codes * WORDS)[:WORDS])
                labels.append(label)
    return torch.tensor(rows), torch.tensor(labels)


def data() -> Data:
    """As many lines of each module."""
    rows, labels = _lines()
    least = int(labels.bincount().min())
    order = torch.randperm(len(rows))
    chosen = torch.cat([order[labels[order] == k][:least] for k in range(len(MODULES))])
    return split(rows[chosen], labels[chosen])


@program
def source_words() -> Plan:
    """Six in ten lines are placed, where chance places one in four."""
    return Plan(
        name="source_words",
        task="classes",
        tokens=True,
        data=data,
        build=WordBag,
        shape={"width": 24, "activation": nn.ReLU, "dropout": 0.2, "output": None},
        loss=nn.CrossEntropyLoss(),
        optimizer=Adam,
        settings={"lr": 5e-3},
        measure=accuracy,
        mark=0.58,
        steps=300,
        batch=64,
        evaluate_every=50,
    )
