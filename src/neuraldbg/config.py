"""Settings: arguments first, then the environment, then the defaults.

- `NEURALDBG_MODE`: `on` or `off`; `off` makes the tool inert (default `on`).
- `NEURALDBG_DIR`: the folder for run files (default `.neuraldbg`).
- `NEURALDBG_STRICT`: `on` or `off`; failures of NeuralDBG become errors (default `off`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuraldbg.errors import UsageError

MODE: Final = "NEURALDBG_MODE"
DIR: Final = "NEURALDBG_DIR"
STRICT: Final = "NEURALDBG_STRICT"

DEFAULT_DIR: Final = ".neuraldbg"
DEFAULT_BUDGET: Final = 0.02

_ON: Final = frozenset({"on", "1", "true", "yes"})
_OFF: Final = frozenset({"off", "0", "false", "no"})


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one process.

    Attributes:
        off: Whether the tool is switched off and must leave everything alone.
        directory: Where run files go.
        strict: Whether a failure of NeuralDBG is an error rather than a notice.
        budget: Share of the run's time that watching may cost.
    """

    off: bool = False
    directory: Path = Path(DEFAULT_DIR)
    strict: bool = False
    budget: float = DEFAULT_BUDGET

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        strict: bool | None = None,
        budget: float | None = None,
        directory: Path | None = None,
    ) -> Config:
        """Settings from arguments (where not None) and the environment.

        Example:
            >>> Config.from_env({"NEURALDBG_MODE": "off"}).off
            True

        Raises:
            UsageError: A variable or argument holds a value that means nothing.
        """
        env = os.environ if environ is None else environ
        return cls(
            off=not _switch(env, MODE, default=True),
            directory=directory or Path(env.get(DIR) or DEFAULT_DIR),
            strict=_switch(env, STRICT, default=False) if strict is None else strict,
            budget=DEFAULT_BUDGET if budget is None else check_budget(budget),
        )


def check_budget(budget: float) -> float:
    """The budget itself, if it is a share of time.

    Raises:
        UsageError: It is negative or not a number.
    """
    if not budget >= 0.0:
        msg = (
            f"the budget is the share of the run's time that watching may cost, 0 or more, but "
            f"{budget!r} was given; 0.02 means two per cent"
        )
        raise UsageError(msg)
    return float(budget)


def _switch(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = env.get(name, "").strip().lower()
    if not value:
        return default
    if value in _ON or value in _OFF:
        return value in _ON
    msg = f"{name} is {env[name]!r}; use 'on' or 'off', or leave it unset"
    raise UsageError(msg)
