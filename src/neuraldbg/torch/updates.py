"""The parameters as the optimizer treats them, step after step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.torch import facts
from neuraldbg.torch.identity import ByTensor
from neuraldbg.torch.optimizer import COLUMNS, Line, ParamLook, carried, has_values
from neuraldbg.torch.streams import Stream
from neuraldbg.torch.succession import Lines, held

# Rows closer than this (in units of the weight's scale) start out as equal; their spread
# is then followed, since a symmetric start that training breaks is no fault.
EQUAL_ROWS: Final = 1e-3


class ParamSide:
    """Follows gradients, weights and updates of one loop.

    Args:
        steps, looks: Where readings go.
        names: Gives the watched parameters by name.
    """

    def __init__(
        self, steps: Stream, looks: Stream, names: Callable[[], dict[str, Tensor]]
    ) -> None:
        self.stepped: list[weakref.ref[Optimizer]] = []
        self.counts: list[int] = []
        self.schedulers: list[weakref.ref[Any]] = []
        self.fresh = False  # whether an optimizer has stepped that had not before
        self.initial: ByTensor[dict[str, Any]] = ByTensor()
        self._idle: list[weakref.ref[Optimizer]] = []
        self._lines = Lines()
        self._leader = 0
        self._behind: dict[int, int] = {}
        self._attempt: tuple[int, int] | None = None
        self._steps = steps
        self._looks = looks
        self._names = names
        self._look: ParamLook | None = None
        self._bare: ParamLook | None = None
        self._places: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._grads: ByTensor[Line] = ByTensor()
        self._carried: dict[int, float] = {}
        self._equal: list[tuple[str, weakref.ref[Tensor]]] = []

    def know(self, optimizer: Optimizer) -> None:
        """Follow an optimizer that has not stepped yet."""
        if not self.known(optimizer):
            self._idle.append(weakref.ref(optimizer))

    def known(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer is followed."""
        return any(ref() is optimizer for ref in (*self.stepped, *self._idle))

    @property
    def any(self) -> bool:
        """Whether any optimizer is or was followed."""
        return bool(self.stepped or self._idle)

    @property
    def renewed(self) -> int:
        """How often an optimizer took the place of one that was made for the same parameters."""
        return self._lines.renewed

    @property
    def alone(self) -> bool:
        """Whether the one optimizer that ever stepped is the only one there is."""
        return len(self.stepped) == 1 and not self._idle

    def rested(self, steps: int) -> None:
        """The only optimizer stepped this often while nobody looked."""
        self.counts[0] += steps

    def index(self, optimizer: Optimizer) -> int:
        """The number of an optimizer that steps, in order of first steps."""
        for i, ref in enumerate(self.stepped):
            if ref() is optimizer:
                return i
        self._idle = [ref for ref in self._idle if ref() not in (None, optimizer)]
        heir = self._lines.heir(optimizer)
        if heir is not None:
            self.stepped[heir] = weakref.ref(optimizer)
            return heir
        self._lines.begin(optimizer)
        self.stepped.append(weakref.ref(optimizer))
        self.counts.append(0)
        self.fresh = True
        return len(self.stepped) - 1

    def holds(self, params: Iterable[Tensor]) -> bool:
        """Whether an optimizer is to train any of these parameters."""
        own = {id(p) for p in params}
        return any(id(p) in own for _, o in self.alive() for p in held(o))

    def alive(self) -> list[tuple[int, Optimizer]]:
        """The optimizers that exist, with their numbers; those that never stepped last."""
        refs = [*self.stepped, *self._idle]
        return [(i, o) for i, ref in enumerate(refs) if (o := ref()) is not None]

    def steps(self, index: int) -> int:
        """Steps that an optimizer has taken."""
        return self.counts[index] if index < len(self.counts) else 0

    # -- around a step -----------------------------------------------------------------

    def backward_begins(self) -> None:
        """Note the gradients left over; the least of several backward passes counts."""
        for i, optimizer in self.alive():
            # One made before each backward pass has not stepped yet; its line has.
            line = i if i < len(self.stepped) else self._lines.line(optimizer)
            if line is None or self.steps(line) == 0 or self._carried.get(line) == 0.0:
                continue
            norm = carried(held(optimizer))
            self._carried[line] = min(norm, self._carried.get(line, norm))

    def before_step(self, index: int, optimizer: Optimizer, *, due: bool) -> None:
        """Read rates on every step, gradients and weights on due ones."""
        self._note_rates(index, optimizer, due=due)
        if self.counts[index] == 0:
            self._note_initial()
        left = self._carried.pop(index, None)
        if due:
            if left is not None:
                self._looks.put(Channel(Kind.OPTIMIZER, str(index), m.O_CARRIED), left)
            self._look = ParamLook(held(optimizer))
            self._look.before()

    def after_step(self, index: int, *, closure: bool) -> None:
        """Read what the step did, if it was due.

        Args:
            index: The optimizer.
            closure: Whether the gradients were computed inside the step.
        """
        self.counts[index] += 1
        look, self._look = self._look, None
        if look is not None:
            if closure:
                look.read_gradients()
            self._put(index, look)

    def attempt(self, index: int | None) -> None:
        """A loss scaler is about to let an optimizer step, or to skip that."""
        self._attempt = None if index is None else (index, self.steps(index))

    def skipped(self) -> int | None:
        """The optimizer whose step the loss scaler has just skipped, or None."""
        attempt, self._attempt = self._attempt, None
        stepped = attempt is None or self.steps(attempt[0]) > attempt[1]
        return None if attempt is None or stepped else attempt[0]

    def ends_step(self, index: int) -> bool:
        """Whether the step of this optimizer is the one that ends a step of the loop.

        Of several optimizers the one that steps first leads, until it is gone or another
        one steps twice without it.
        """
        ahead = self._behind.get(index, 0) > 0
        if index == self._leader or ahead or self.stepped[self._leader]() is None:
            self._leader = index
            self._behind.clear()
            return True
        self._behind[index] = 1
        return False

    def _note_rates(self, index: int, optimizer: Optimizer, *, due: bool) -> None:
        for g, group in enumerate(optimizer.param_groups):
            rate = group.get("lr")
            if isinstance(rate, Tensor):
                if rate.device.type != "cpu" and not due:
                    continue
                rate = float(rate)
            if isinstance(rate, (int, float)):
                channel = Channel(Kind.OPTIMIZER, f"{index}.{g}", m.O_LR)
                self._steps.put(channel, float(rate))

    def note_schedulers(self) -> None:
        """How many steps each learning rate scheduler has taken."""
        for i, ref in enumerate(self.schedulers):
            scheduler = ref()
            if scheduler is not None:
                channel = Channel(Kind.OPTIMIZER, f"scheduler.{i}", m.O_SCHEDULED)
                self._steps.put(channel, float(scheduler.last_epoch))

    def _note_initial(self) -> None:
        for name, param in self._names().items():
            if param in self.initial or not has_values(param):
                continue
            first = facts.initial(param)
            self.initial.put(param, first)
            spread = first["row_spread"]
            if spread is not None and spread < EQUAL_ROWS:
                self._equal.append((name, weakref.ref(param)))

    # -- between steps ------------------------------------------------------------------

    def end_look(self, *, bare: bool) -> None:
        """The end of a due step.

        Args:
            bare: Whether no optimizer is known, so that changes are judged between looks.
        """
        for name, ref in self._equal:
            param = ref()
            if param is not None:
                spread = facts.initial(param)["row_spread"]
                self._looks.put(Channel(Kind.PARAM, name, m.P_ROWS), float(spread or 0.0))
        if bare:
            if not self.initial:
                self._note_initial()
            if self._bare is not None:
                self._put(-1, self._bare)
            self._bare = ParamLook(list(self._names().values()))
            self._bare.before()

    def _put(self, index: int, look: ParamLook) -> None:
        table = look.after(self._grads)
        if table is None:
            return
        key = (index, *(id(p) for p in look.params))
        if key not in self._places:
            names = {id(p): n for n, p in self._names().items()}
            wanted = [
                Channel(Kind.PARAM, names.get(id(p), f"optimizer.{index}.{i}"), metric)
                for i, p in enumerate(look.params)
                for metric in COLUMNS
            ]
            self._places[key] = self._looks.positions(wanted)
        values, present = table
        self._looks.put_block(self._places[key], values.ravel(), present.ravel())

    # -- clipping ------------------------------------------------------------------------

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor, *, due: bool) -> None:
        """Note a call of gradient clipping."""
        own = {id(p) for p in params}
        index = next((i for i, o in self.alive() if any(id(p) in own for p in held(o))), 0)
        if norm.device.type == "cpu" or due:
            self._steps.put(Channel(Kind.OPTIMIZER, str(index), m.O_CLIP_NORM), float(norm))
        self._steps.put(Channel(Kind.OPTIMIZER, str(index), m.O_CLIP_LIMIT), limit)

    def still_scaled(self, params: list[Tensor], scaler: Any) -> bool:  # noqa: ANN401
        """Whether a loss scaler has not yet unscaled the gradients of these parameters."""
        own = {id(p) for p in params}
        for _, optimizer in self.alive():
            if any(id(p) in own for p in held(optimizer)):
                state = scaler._per_optimizer_states.get(id(optimizer))
                return not state or state["stage"].name == "READY"
        return False
