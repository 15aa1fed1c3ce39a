"""What works with the installed torch, found out on a tiny model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind

STEPS: Final = 3
Outcome = bool | str


def probe() -> dict[str, Outcome]:
    """Try each mechanism; True if it works, else a sentence that says what happened."""
    trials: dict[str, Callable[[], None]] = {
        "eager taps": lambda: _sees(backend=None, late=False),
        "compiled taps": lambda: _sees(backend="aot_eager", late=False),
        "late attach": lambda: _sees(backend="aot_eager", late=True),
        "code generation": lambda: _sees(backend="inductor", late=False),
    }
    return {name: _outcome(trial) for name, trial in trials.items()}


def _outcome(trial: Callable[[], None]) -> Outcome:
    try:
        trial()
    except Exception as error:  # the outcome is the answer
        return f"{type(error).__name__}: {error}"
    return True


def _sees(*, backend: str | None, late: bool) -> None:
    """Watch a tiny model and check that activations and gradients arrived.

    Raises:
        RuntimeError: They did not.
    """
    from neuraldbg.store.reader import load_record
    from neuraldbg.torch.monitor import NeuralDbg

    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    model: Any = net if backend is None else torch.compile(net, backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "probe.ndbg"
        if late:
            _train(model, optimizer, 1)
        with NeuralDbg(model, optimizer, strict=True, out=out):
            _train(model, optimizer, STEPS)
        record = load_record(out)
    for metric in (m.ACT_RMS, m.GRAD_RMS):
        if len(record.series(Kind.MODULE, "0", metric)) != STEPS:
            msg = f"{metric} of the first layer was not seen in each of {STEPS} steps"
            raise RuntimeError(msg)


def _train(
    model: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, steps: int
) -> None:
    for _ in range(steps):
        loss: torch.Tensor = model(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
