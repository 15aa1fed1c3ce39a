"""From numbers to places on an axis, and the ticks that say which is where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from neuraldbg.core.record import Floats

# Beyond this ratio of largest to smallest a linear axis shows the largest only.
_LOGARITHMIC: Final = 50.0
_TICKS: Final = 5
_MOST_DECADES: Final = 6


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis.

    Attributes:
        low, high: Its ends; `low < high`.
        logarithmic: Whether equal factors are equally far apart.
    """

    low: float
    high: float
    logarithmic: bool = False

    def share(self, values: Floats) -> Floats:
        """How far along the axis, 0 at `low` and 1 at `high`; clipped."""
        if self.logarithmic:
            tiny = np.maximum(values, self.low)
            part = (np.log10(tiny) - math.log10(self.low)) / self._decades
        else:
            # Halved first: the span of two huge numbers may not be a number.
            part = (values / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return np.clip(part, 0.0, 1.0)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        return self._powers() if self.logarithmic else steps_of(self.low, self.high)

    @property
    def _decades(self) -> float:
        return math.log10(self.high) - math.log10(self.low)

    def _powers(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        if last - first < 1:
            return [self.low, self.high]
        stride = max(1, math.ceil((last - first) / _MOST_DECADES))
        return [10.0**power for power in range(first, last + 1, stride)]


def fit(values: Floats, *, logarithmic: bool | None = None) -> Scale:
    """An axis that holds all finite values.

    Args:
        values: Shape (n,).
        logarithmic: Whether it should be; None to let the values decide.
    """
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    if not len(finite):
        return Scale(0.0, 1.0)
    if logarithmic is None:
        wide = len(positive) > 0 and positive.max() / _LOGARITHMIC > positive.min()
        logarithmic = bool(wide and len(positive) == len(finite))
    if logarithmic and len(positive):
        low, high = float(positive.min()), float(positive.max())
        return Scale(low, high, logarithmic=True) if low < high else Scale(low / 2, low * 2, True)  # noqa: FBT003
    low, high = float(finite.min()), float(finite.max())
    room = abs(low) / 10 or 1.0
    return Scale(low, high) if low < high else Scale(low - room, high + room)


def steps_of(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Round values between two numbers: multiples of 1, 2 or 5 times a power of ten.

    Example:
        >>> steps_of(0, 100)
        [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    span = high / most - low / most
    if not math.isfinite(span) or span <= 0:
        return [low, high]
    power = 10.0 ** math.floor(math.log10(span))
    stride = next((f * power for f in (1, 2, 5, 10) if f * power >= span * 0.999), 10 * power)
    first, last = math.ceil(low / stride - 1e-9), math.floor(high / stride + 1e-9)
    return [k * stride for k in range(first, last + 1)]


def number(value: float) -> str:
    """A number in a few characters; those that are none by name.

    Example:
        >>> number(0.00012), number(120000.0), number(float("nan")), number(0.25)
        ('1.2e-4', '1.2e5', 'nan', '0.25')
    """
    if not math.isfinite(value):
        return str(float(value))
    text = f"{value:.3g}"
    if "e" in text:
        mantissa, _, power = text.partition("e")
        return f"{mantissa}e{int(power)}"
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, _, power = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return text
