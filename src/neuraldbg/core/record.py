"""Everything observed of one run, in memory, as the detectors and causes read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neuraldbg.core.facts import Channel, Facts, Kind, ModuleFact, ParamFact

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A metric at a site over time.

    Attributes:
        steps: Strictly increasing step numbers, shape (n,).
        values: The readings, shape (n,). NaN and infinities are real readings; a step
            that was not measured is simply not there.
    """

    steps: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> Series:
        """The series without its non-finite readings."""
        keep = np.isfinite(self.values)
        return Series(self.steps[keep], self.values[keep])

    def between(self, first: int, last: int) -> Series:
        """The readings with `first <= step <= last`."""
        keep = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[keep], self.values[keep])

    def on(self, steps: Ints) -> Floats:
        """The readings at certain steps; NaN where there is none."""
        if not len(self):
            return np.full(len(steps), np.nan)
        at = np.minimum(np.searchsorted(self.steps, steps), len(self) - 1)
        return np.where(self.steps[at] == steps, self.values[at], np.nan)

    def median(self) -> float:
        """Median of the finite readings; NaN if there is none."""
        values = self.finite().values
        return float(np.median(values)) if len(values) else float("nan")


EMPTY = Series(np.empty(0, np.int64), np.empty(0, np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Static facts and series of one run."""

    facts: Facts
    channels: Mapping[Channel, Series] = field(default_factory=dict)
    _modules: Mapping[str, ModuleFact] = field(init=False, repr=False)
    _params: Mapping[str, ParamFact] = field(init=False, repr=False)
    _called: tuple[ModuleFact, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Causes ask for thousands of names; of two facts of one name, the first counts.
        object.__setattr__(self, "_modules", {m.name: m for m in reversed(self.facts.modules)})
        object.__setattr__(self, "_params", {p.name: p for p in reversed(self.facts.params)})
        ran = sorted((m.order, i) for i, m in enumerate(self.facts.modules) if m.order is not None)
        object.__setattr__(self, "_called", tuple(self.facts.modules[i] for _, i in ran))

    def series(self, kind: Kind, name: str, metric: str) -> Series:
        """The series at a site; empty if it was never measured."""
        return self.channels.get(Channel(kind, name, metric), EMPTY)

    def each(self, kind: Kind, metric: str) -> Iterator[tuple[str, Series]]:
        """Every site of a kind that has the metric, with its series."""
        for channel, series in self.channels.items():
            if channel.kind == kind and channel.metric == metric and len(series):
                yield channel.name, series

    def called(self) -> tuple[ModuleFact, ...]:
        """Modules that ran, in order of first execution."""
        return self._called

    def module(self, name: str) -> ModuleFact | None:
        """The module of that name."""
        return self._modules.get(name)

    def param(self, name: str) -> ParamFact | None:
        """The parameter of that name."""
        return self._params.get(name)
