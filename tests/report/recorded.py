"""Records made by hand, one for each shape that pictures must cope with."""

from __future__ import annotations

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Facts, Kind, ModuleFact, ParamFact
from neuraldbg.core.record import Record, Series

from .samples import facts

STEPS = 40


def series(*values: float, every: int = 1) -> Series:
    """Readings at steps 0, `every`, ..."""
    return Series(np.arange(len(values)) * every, np.array(values, np.float64))


def record(names: tuple[str, ...] = (), steps: int = STEPS) -> Record:
    """A model of linear layers whose first gradient is NaN at the end, and whose loss spikes."""
    names = names or tuple(f"blocks.{i}" for i in range(4))
    known = facts(steps=steps)
    modules = tuple(ModuleFact(name, "Linear", order=i) for i, name in enumerate(names))
    params = tuple(ParamFact(f"{name}.weight", (8, 8), optimizer=0) for name in names)
    at = np.arange(steps)
    channels = {
        Channel(Kind.LOSS, "loss", m.L_VALUE): Series(at, 2.3 * np.exp(-at / steps)),
        Channel(Kind.OPTIMIZER, "0.0", m.O_LR): Series(at, np.full(steps, 0.1)),
    }
    for i, name in enumerate(names):
        scale = 10.0 ** (i % 8 - 4) * np.exp(np.sin(at))
        gradient = scale.copy()
        if i == 0:
            gradient[-2:] = np.nan, np.inf
        channels[Channel(Kind.MODULE, name, m.GRAD_RMS)] = Series(at[::2], gradient[::2])
        channels[Channel(Kind.MODULE, name, m.ACT_RMS)] = Series(at[::2], scale[::2])
        channels[Channel(Kind.MODULE, name, m.ACT_FLAT)] = Series(
            at[::2], np.full(len(at[::2]), 0.2)
        )
        channels[Channel(Kind.PARAM, f"{name}.weight", m.P_RATIO)] = Series(at, scale / 10)
        channels[Channel(Kind.PARAM, f"{name}.weight", m.P_GRAD)] = Series(at, gradient)
    return Record(Facts(known.run, modules, params, known.optimizers, known.losses), channels)


def bare() -> Record:
    """A run of which nothing was read."""
    return Record(facts(steps=0))
