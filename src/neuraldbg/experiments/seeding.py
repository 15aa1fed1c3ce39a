"""Replicates: the script's own seeds, each moved by the number of the replicate."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import numpy as np

STRIDE: Final = 1_000_003  # a prime, so that neighbouring seeds of scripts do not meet
_SIZE: Final = 2**32  # what NumPy takes


def shift(replicate: int, torch: ModuleType) -> None:
    """Seed everything, so that scripts that do not are paired; move what they set themselves.

    Args:
        replicate: 0 leaves the script's own seeds as they are.
        torch: The module, imported.
    """
    offset = replicate * STRIDE
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(offset % _SIZE)
    if not replicate:
        return
    moved = _moved(offset)
    random.seed = moved(random.seed)
    np.random.seed = moved(np.random.seed)
    np.random.default_rng = moved(np.random.default_rng)
    torch.manual_seed = torch.random.manual_seed = moved(torch.manual_seed)  # type: ignore[attr-defined]


def _moved(offset: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def seeded(seed: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            number = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
            return original((int(seed) + offset) % _SIZE if number else seed, *args, **kwargs)

        return seeded

    return wrap
