"""How far two ways to compute the same thing may be apart by rounding alone."""

from __future__ import annotations

import math
from typing import Final

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Facts, ModuleFact

# Unit roundoff by type: half the distance from 1 to the next number.
UNIT: Final = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
}
STORED: Final = UNIT["float32"]  # readings are kept in single precision
SUMS: Final = UNIT["float32"]  # products of low precision are added up in single precision
WIDTHS: Final = ("in_features", "in_channels", "input_size", "embed_dim", "normalized_shape")
# Healthy models, eager against `aot_eager` and Inductor: at most 3 units for gradients that
# cancel. Faults worth the name are hundreds of units.
ALLOWANCE: Final = 16.0


class Rounding:
    """The rounding to expect at each module of a run.

    Errors of random sign add up like a random walk: with the square root of the number of
    terms of a sum, and of the number of modules that the signal has gone through (Higham
    and Mary, A new approach to probabilistic rounding error analysis, 2019).

    Args:
        facts: Of the run; gives types, widths and the order of modules.
    """

    def __init__(self, facts: Facts) -> None:
        types = {p.dtype for p in facts.params} | {str(facts.run.notes.get(m.N_AUTOCAST))}
        self.dtype = max((t for t in types if t in UNIT), key=UNIT.__getitem__, default="float32")
        self._depth = sum(x.order is not None for x in facts.modules)
        self._terms = max([1, *(_terms(x, facts) for x in facts.modules)])

    def expected(self, passed: int) -> float:
        """The relative difference that rounding explains.

        Args:
            passed: Modules that the signal has gone through.
        """
        one = max(UNIT[self.dtype], STORED) + math.sqrt(self._terms) * SUMS
        return ALLOWANCE * math.sqrt(1 + passed) * one

    def backward(self, order: int) -> int:
        """Modules that the gradient at a module has gone through, forward and back."""
        return 2 * self._depth - order


def _terms(module: ModuleFact, facts: Facts) -> int:
    """Terms of the longest sum that a module computes."""
    fans = [p.fan_in or 1 for p in facts.params if p.module == module.name]
    widths = [module.config.get(name) for name in WIDTHS]
    return int(max([1, *fans, *(w for w in widths if isinstance(w, int))]))
