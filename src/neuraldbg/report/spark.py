"""A series as one line of bars."""

from __future__ import annotations

from typing import Final

import numpy as np

from neuraldbg.core.record import Series
from neuraldbg.report.charts.scale import fit, number

_BARS: Final = "▁▂▃▄▅▆▇█"
_LOST: Final = "!"
WIDTH: Final = 40


def line(series: Series, width: int = WIDTH) -> str:
    """At most `width` characters; a stretch with a reading that is no finite number is `!`.

    Example:
        >>> line(Series(np.arange(4), np.array([0.0, 1.0, 2.0, float("nan")])))
        '▁▅█!'
    """
    scale = fit(series.values)
    parts = np.array_split(series.values, min(width, len(series))) if len(series) else []
    return "".join(_bar(scale.share(p)) if np.isfinite(p).all() else _LOST for p in parts)


def told(series: Series, width: int = WIDTH) -> str:
    """The line, with the first and the last reading; empty if there is none.

    Example:
        >>> told(Series(np.arange(3), np.array([4.0, 2.0, 1.0])))
        '█▃▁  4 to 1'
    """
    if not len(series):
        return ""
    return f"{line(series, width)}  {number(series.values[0])} to {number(series.values[-1])}"


def _bar(share: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    # The highest of a stretch: a spike is what one looks for.
    return _BARS[min(int(float(share.max()) * len(_BARS)), len(_BARS) - 1)]
