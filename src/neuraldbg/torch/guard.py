"""Our own faults stay ours: they become an observation gap, warned of once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Final

from neuraldbg.core.facts import Gap
from neuraldbg.errors import ObservationWarning

MOST: Final = 256  # gaps kept; a fault whose text differs every time must not fill memory


class Faults:
    """Collects what went wrong inside the monitor.

    Args:
        strict: Raise our own errors instead of recording them.

    Attributes:
        on_gap: Called with each new gap.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.on_gap: Callable[[Gap], None] | None = None
        self.gaps: list[Gap] = []
        self._warned = False

    def gap(self, what: str, why: str) -> None:
        """Note that something cannot be observed; the same gap is kept once."""
        gap = Gap(what, why)
        if gap in self.gaps or len(self.gaps) >= MOST:
            return
        self.gaps.append(gap)
        if self.on_gap is not None:
            # Called while another error of ours is dealt with: this one must not get out.
            with contextlib.suppress(Exception):
                self.on_gap(gap)

    def fault(self, what: str, error: Exception) -> None:
        """Record an error of ours; raises it again under `strict`."""
        if self.strict:
            raise error
        self.note(what, error)

    def note(self, what: str, error: Exception) -> None:
        """Record an error of ours where nothing can be raised, as in a thread of ours."""
        self.gap(what, f"{type(error).__name__}: {error}")
        if not self._warned:
            self._warned = True
            self._warn(what, error)

    def _warn(self, what: str, error: Exception) -> None:
        text = (
            f"NeuralDBG could not observe {what} ({type(error).__name__}: {error}). "
            "Training goes on unchanged; the report lists what is missing."
        )
        # Where warnings are errors, this one would end the training.
        with contextlib.suppress(ObservationWarning):
            warnings.warn(text, ObservationWarning, stacklevel=3)
