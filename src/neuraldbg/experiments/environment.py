"""Which environment variables belong to a run; never one that could hold a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from neuraldbg.core.facts import RunFact
from neuraldbg.core.metrics import N_ENVIRONMENT

_MATTERS: Final = re.compile(
    r"(OMP|MKL|OPENBLAS|NUMEXPR)_\w+|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_ORDER)"
    r"|CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE|PYTHONHASHSEED"
    r"|(TORCH|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH|AOT)_\w+"
)
_SECRET: Final = re.compile(r"token|secret|passw|key|credential|auth", re.IGNORECASE)


def recorded(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that decide how a run computes.

    Example:
        >>> recorded({"OMP_NUM_THREADS": "2", "TORCH_TOKEN": "x", "HOME": "/"})
        {'OMP_NUM_THREADS': '2'}
    """
    env = os.environ if environ is None else environ
    return {k: v for k, v in env.items() if _MATTERS.fullmatch(k) and not _SECRET.search(k)}


def of(run: RunFact) -> dict[str, str]:
    """The variables that were recorded with a run."""
    notes = run.notes.items()
    return {k.removeprefix(N_ENVIRONMENT): str(v) for k, v in notes if k.startswith(N_ENVIRONMENT)}


def for_trial(run: RunFact, *, compiled: bool) -> dict[str, str]:
    """The environment of a trial: today's, with what was recorded.

    Args:
        run: The run to repeat.
        compiled: Whether `torch.compile` is to do anything.
    """
    ours = {"PYTHONDONTWRITEBYTECODE": "1", "NEURALDBG_MODE": "on"}
    # Two names: the older one is read by releases before 2.4.
    off = {} if compiled else {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}
    # The trial starts elsewhere: what is relative in the path would point to nothing.
    path = os.environ.get("PYTHONPATH", "")
    known = os.pathsep.join(os.path.abspath(p) for p in path.split(os.pathsep) if p)  # noqa: PTH100
    return {**os.environ, **of(run), **ours, **off, **({"PYTHONPATH": known} if known else {})}
