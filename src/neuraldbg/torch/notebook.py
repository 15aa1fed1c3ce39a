"""Trials inside this process, for training that is a function: `diagnosis.verify(train)`."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neuraldbg.config import DEFAULT_BUDGET
from neuraldbg.errors import RunFileError
from neuraldbg.experiments import outcome
from neuraldbg.experiments.interventions import Intervention
from neuraldbg.experiments.outcome import Outcome, Scope
from neuraldbg.experiments.runner import Result
from neuraldbg.experiments.seeding import Shift
from neuraldbg.experiments.spec import Status
from neuraldbg.torch import attach, boundaries
from neuraldbg.torch.interventions import Action, Context, ear_of, make
from neuraldbg.torch.interventions.patching import restore


class _EnoughError(BaseException):
    """Ends a training function once the window is over; not for `except Exception`."""


class Bench:
    """Runs a training function again and again, with one thing changed.

    Args:
        train: Builds its model, optimizer and data, and trains; takes nothing.
        scope: What trials are judged on; each ends after its last step.
        seconds: Budget for all trials.
    """

    def __init__(self, train: Callable[[], object], scope: Scope, seconds: float) -> None:
        self._train = train
        self._scope = scope
        self._ends = time.monotonic() + seconds
        self._longest = 0.0

    @property
    def affords(self) -> bool:
        """Whether another trial is likely to end in time."""
        return self._ends - time.monotonic() > 0.9 * self._longest

    def trial(
        self, intervention: Intervention | None, seed: int, context: dict[str, Any] | None = None
    ) -> Result:
        """Call the function once, observed, and put everything back."""
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="neuraldbg-") as folder:
            path = Path(folder) / "trial.ndbg"
            status, said = self._call(path, intervention, seed, context or {})
            seconds = time.monotonic() - begun
            self._longest = max(self._longest, seconds)
            return Result(self._read(path), status, seconds, said, cut=False)

    def _call(
        self, path: Path, intervention: Intervention | None, seed: int, context: dict[str, Any]
    ) -> tuple[Status, str]:
        session = attach.start(path, DEFAULT_BUDGET, False, ["notebook"])  # noqa: FBT003
        session.each_step(self._step)
        action: Action | None = None
        listener: boundaries.Listener | None = None
        error: Exception | None = None
        eager = intervention is not None and intervention.eager
        stance = torch.compiler.set_stance("force_eager" if eager else "default")
        try:
            with _seeded(seed):
                if intervention is not None:
                    action = make(intervention.name, Context.of(context))
                    listener = ear_of(action)
                    boundaries.listen(listener)
                    action.begin()
                with stance:
                    self._train()
        except _EnoughError:
            pass
        except Exception as failed:  # a failing training is what is under test
            error = failed
        finally:
            for ear in (listener, action):
                if ear is not None:
                    boundaries.ignore(ear)
            restore()
            session.finish("ok" if error is None else "exception", error)
        return Status(action.applied if action is not None else 0), str(error or "")

    def _step(self, step: int, loss: float) -> None:
        if step >= self._scope.last:
            raise _EnoughError

    def _read(self, path: Path) -> Outcome | None:
        try:
            return outcome.read(path, self._scope)
        except RunFileError:
            return None


@contextmanager
def _seeded(replicate: int) -> Iterator[None]:
    """Seeds moved for the time of a trial; the notebook's own streams go on where they were."""
    seeds = Shift(replicate)
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            seeds.python()
            seeds.numpy(np)
            seeds.torch(torch)
            yield
        finally:
            seeds.undo()
            random.setstate(python)
            np.random.set_state(numpy)
