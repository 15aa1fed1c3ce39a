"""One watched model: its hooks, its names, and what its taps collected."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind, ModuleFact
from neuraldbg.torch import facts
from neuraldbg.torch.bank import Rows
from neuraldbg.torch.compile import own_name
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.hooks import Hooks
from neuraldbg.torch.measure import PEAKS, SUMS
from neuraldbg.torch.streams import Stream

OUTPUT = (
    m.ACT_MEAN,
    m.ACT_RMS,
    m.ACT_ABSMAX,
    m.ACT_LOW,
    m.ACT_HIGH,
    m.ACT_ZERO,
    m.ACT_NEGATIVE_UNITS,
    m.ACT_CONSTANT_UNITS,
    m.ACT_FLAT,
    m.ACT_NONFINITE,
)
GRADIENT = (m.GRAD_MEAN, m.GRAD_RMS, m.GRAD_ABSMAX, m.GRAD_ZERO, m.GRAD_NONFINITE)
SOURCE = (m.IN_RMS, m.IN_ABSMAX, m.IN_ZERO, m.IN_DEAD_UNITS, m.IN_FLAT, m.IN_NONFINITE)

Values = NDArray[np.float64]


class Root:
    """A model under watch, held weakly.

    Args:
        model: The user's own module (unwrapped).
        prefix: Put before its names until they are settled.
        faults: Receives our own errors.
        on_input, on_prediction: See `Hooks`.
    """

    def __init__(
        self,
        model: nn.Module,
        prefix: str,
        faults: Faults,
        on_input: Callable[[int, Tensor], None],
        on_prediction: Callable[[Tensor], None],
    ) -> None:
        self.ref = weakref.ref(model)
        self.prefix = prefix
        self.hooks = Hooks(model, faults, on_input, on_prediction)
        self.compiled = False
        self.reached = False
        self.named = False
        self.first_calls: dict[str, int] = {}
        self._places: dict[str, NDArray[np.int64]] = {}
        self._names = list(self.hooks.rows)

    def used(self) -> bool:
        """Whether training was seen to call this model or a loss to reach it."""
        return self.reached or bool(self.hooks.ledger.order)

    def settle_name(self, prefix: str) -> None:
        """Fix the prefix; until then it may change."""
        self.named, self.prefix = True, prefix

    def full_name(self, name: str) -> str:
        """The user's name of a module or parameter of this model."""
        return facts.join(self.prefix, own_name(name))

    def modules(self) -> list[nn.Module]:
        """The model's modules, itself included."""
        model = self.ref()
        return [] if model is None else list(model.modules())

    def parameters(self) -> dict[str, Tensor]:
        """The model's parameters by the user's name."""
        model = self.ref()
        if model is None:
            return {}
        return {self.full_name(n): p for n, p in model.named_parameters()}

    def module_facts(self) -> list[ModuleFact]:
        """Facts of every module, in registration order."""
        model = self.ref()
        if model is None:
            return []
        order = {n: self.hooks.ledger.order.get(r.output) for n, r in self.hooks.rows.items()}
        seen = {n: o for n, o in order.items() if o is not None}
        unseen = {n: tap.unseen for n, tap in self.hooks.taps.items() if tap.unseen}
        return facts.module_facts(model, self.prefix, seen, self.first_calls, unseen)

    def without_gradient(self) -> list[str]:
        """Modules in compiled code whose output lost its gradient on the way back.

        Either a module inside it got one, or it has no weights and got none although the
        modules that ran just before and after it did.
        """
        model, order, rows = self.ref(), self.hooks.ledger.order, self.hooks.rows
        if model is None or not self.compiled:
            return []
        ran = sorted(
            (n for n in rows if rows[n].output in order), key=lambda n: order[rows[n].output]
        )
        got = [rows[n].gradient in order for n in ran]
        around = {n: got[i - 1 : i] + got[i + 1 : i + 2] == [True, True] for i, n in enumerate(ran)}
        inside = {n.rpartition(".")[0] for n, has in zip(ran, got, strict=True) if has and n}
        bare = {n for n in ran if not list(model.get_submodule(n).parameters())}
        return [
            n
            for n, has in zip(ran, got, strict=True)
            if not has and (n in inside or (n in bare and around[n]))
        ]

    def discard(self) -> None:
        """Drop what taps collected outside a due step."""
        self.hooks.ledger.start_drain()

    def drain(self, stream: Stream, loss_scale: float) -> None:
        """Turn the rows of the step into readings.

        Args:
            stream: Where they go.
            loss_scale: Factor that the loss was scaled by; gradients are divided by it.
        """
        self.compiled |= self.hooks.in_graph()
        calls = self.hooks.ledger.start_drain()
        sums, peaks = self.hooks.ledger.drain()
        if not self.first_calls:
            self.first_calls = {n: calls[r.output] for n, r in self.hooks.rows.items()}
        if not self._places:
            self._register(stream)
        rows = list(self.hooks.rows.values())
        self._put(stream, "output", [r.output for r in rows], sums, peaks, _output)
        self._put(
            stream, "gradient", [r.gradient for r in rows], sums, peaks,
            lambda s, p: _gradient(s, p, loss_scale),
        )  # fmt: skip
        reading = [r.source for r in rows if r.source is not None]
        self._put(stream, "source", reading, sums, peaks, _source)

    def _register(self, stream: Stream) -> None:
        groups = {
            "output": (OUTPUT, self._names),
            "gradient": (GRADIENT, self._names),
            "source": (SOURCE, [n for n in self._names if self.hooks.rows[n].source is not None]),
        }
        for group, (metrics, names) in groups.items():
            wanted = [Channel(Kind.MODULE, self.full_name(n), x) for n in names for x in metrics]
            self._places[group] = stream.positions(wanted).reshape(len(names), len(metrics))

    def _put(
        self,
        stream: Stream,
        group: str,
        rows: list[int],
        sums: Rows,
        peaks: Rows,
        reduce: Callable[[Rows, Rows], Values],
    ) -> None:
        if not rows:
            return
        called = sums[rows, 0] > 0
        with np.errstate(all="ignore"):
            values = reduce(sums[rows], peaks[rows])
        places = self._places[group]
        present = np.broadcast_to(called[:, None], places.shape)
        stream.put_block(places.ravel(), values.ravel(), present.ravel())

    def close(self) -> None:
        """Remove every hook."""
        self.hooks.close()


def _column(sums: Rows, name: str) -> Values:
    return sums[:, SUMS.index(name)]


def _moments(sums: Rows) -> tuple[Values, Values]:
    mean = _column(sums, "sum") / _column(sums, "count")
    return mean, np.sqrt(_column(sums, "square") / _column(sums, "sampled"))


def _ends(peaks: Rows) -> tuple[Values, Values, Values]:
    high, low = peaks[:, PEAKS.index("high")], -peaks[:, PEAKS.index("negative_low")]
    return high, low, np.maximum(np.abs(high), np.abs(low))


def _output(sums: Rows, peaks: Rows) -> Values:
    mean, rms = _moments(sums)
    high, low, absmax = _ends(peaks)
    units, sampled = np.maximum(_column(sums, "units"), 1), _column(sums, "sampled")
    return np.stack(
        [
            mean,
            rms,
            absmax,
            low,
            high,
            _column(sums, "zeros") / sampled,
            _column(sums, "negative_units") / units,
            _column(sums, "constant_units") / units,
            _column(sums, "flat") / sampled,
            _column(sums, "nonfinite"),
        ],
        axis=1,
    )


def _gradient(sums: Rows, peaks: Rows, scale: float) -> Values:
    mean, rms = _moments(sums)
    _, _, absmax = _ends(peaks)
    zeros = _column(sums, "zeros") / _column(sums, "sampled")
    return np.stack(
        [mean / scale, rms / scale, absmax / scale, zeros, _column(sums, "nonfinite")], axis=1
    )


def _source(sums: Rows, peaks: Rows) -> Values:
    _, rms = _moments(sums)
    _, low, absmax = _ends(peaks)
    sampled = _column(sums, "sampled")
    dead = _column(sums, "negative_units") / np.maximum(_column(sums, "units"), 1)
    return np.stack(
        [
            rms,
            absmax,
            _column(sums, "zeros") / sampled,
            np.where(low >= 0, dead, 0.0),
            _column(sums, "flat") / sampled,
            _column(sums, "nonfinite"),
        ],
        axis=1,
    )
