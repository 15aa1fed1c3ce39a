"""A long series as fewer points that look the same: of each stretch its extremes."""

from __future__ import annotations

from typing import Final

import numpy as np

from neuraldbg.core.record import Ints, Series

POINTS: Final = 600
"""Points of a curve: more than a screen shows side by side, and 10 KiB of text."""


def thin(series: Series, most: int = POINTS) -> Series:
    """At most so many readings: the ends, extremes of each stretch, and what is not finite.

    Of readings that are not finite only the first of each stretch stays, so that a run that
    is NaN for ever does not grow.
    """
    if len(series) <= most:
        return series
    buckets = max(1, most // 4)
    bounds = np.linspace(0, len(series), buckets + 1).astype(np.int64)
    keep: set[int] = {0, len(series) - 1}
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        keep.update(_telling(series, start, stop))
    at: Ints = np.array(sorted(keep), np.int64)
    return Series(series.steps[at], series.values[at])


def _telling(series: Series, start: int, stop: int) -> set[int]:
    part = series.values[start:stop]
    finite = np.isfinite(part)
    found: set[int] = set()
    if finite.any():
        found.add(start + int(np.argmin(np.where(finite, part, np.inf))))
        found.add(start + int(np.argmax(np.where(finite, part, -np.inf))))
    if not finite.all():
        found.add(start + int(np.argmax(~finite)))
    return found
