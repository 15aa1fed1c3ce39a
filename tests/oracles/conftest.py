"""Where run files go, and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neuraldbg.core.record import Record
from neuraldbg.store.reader import load_record
from neuraldbg.torch.monitor import NeuralDbg

Observe = Callable[..., Record]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NEURALDBG_MODE", "NEURALDBG_STRICT"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def observe(tmp_path: Path) -> Observe:
    """Run a training loop under watch, looking at every step, and read what was recorded."""

    def run(model: nn.Module, train: Callable[[], Any], **settings: Any) -> Record:
        path = tmp_path / "run.ndbg"
        with NeuralDbg(model, budget=float("inf"), strict=True, out=path, **settings):
            train()
        return load_record(path)

    return run
