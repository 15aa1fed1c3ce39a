"""Our own faults stay ours: they become an observation gap, warned of once."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from neuraldbg.core.facts import Gap
from neuraldbg.errors import ObservationWarning

P = ParamSpec("P")
R = TypeVar("R")


class Faults:
    """Collects what went wrong inside the monitor.

    Args:
        strict: Raise our own errors instead of recording them.
        on_gap: Called with each new gap.
    """

    def __init__(
        self, *, strict: bool = False, on_gap: Callable[[Gap], None] | None = None
    ) -> None:
        self.strict = strict
        self.on_gap = on_gap
        self.gaps: list[Gap] = []
        self._warned = False

    def gap(self, what: str, why: str) -> None:
        """Note that something cannot be observed; the same gap is kept once."""
        gap = Gap(what, why)
        if gap in self.gaps:
            return
        self.gaps.append(gap)
        if self.on_gap is not None:
            self.on_gap(gap)

    def fault(self, what: str, error: Exception) -> None:
        """Record an error of ours; raises it again under `strict`."""
        if self.strict:
            raise error
        self.gap(what, f"{type(error).__name__}: {error}")
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"NeuralDBG could not observe {what} ({type(error).__name__}: {error}). "
                "Training goes on unchanged; the report lists what is missing.",
                ObservationWarning,
                stacklevel=2,
            )

    def guarded(self, what: str, fn: Callable[P, R]) -> Callable[P, R | None]:
        """Wrap `fn` so that its exceptions become gaps."""

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the promise is to let none through
                self.fault(what, error)
                return None

        return call
