"""What the losses say of how well a run learns, and whether they say it at all."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Kind, LossFact
from neuraldbg.core.record import Floats, Record
from neuraldbg.core.trajectory import Trajectory, trajectory

# Learnt less than this share of the chance level: trouble begins; nothing learnt: full.
LITTLE: Final = 0.15
# Learnt this share of it: what is left may be the noise of the task.
MOST: Final = 0.9
# Without a chance level: the loss fell by less than this share.
SMALL_FALL: Final = 0.10
TURNS: Final = 0.1  # changes of sign over readings; a likelihood passes zero once
# Targets that grow so much are a critic's own, and its loss does not tell how well it does.
GROWN: Final = 3.0
FEW: Final = 5  # losses from which nothing follows
EARLY: Final = 10  # looks that count as early


@dataclass(frozen=True, slots=True)
class Trouble:
    """Whether the run fails at all, how, and since when.

    Attributes:
        level: 0 (learns) to 1 (clearly fails).
        kind: `nonfinite`, `diverged`, `not_learning` or `none`.
        text: In a sentence, with the numbers.
        step: Where it shows first.
    """

    level: float
    kind: str
    text: str
    step: int | None


class Learning:
    """The losses of a run, judged.

    Args:
        record: What was observed.
        events: The semantic events, in order.
    """

    def __init__(self, record: Record, events: tuple[SemanticEvent, ...]) -> None:
        self._record = record
        self._events = events

    @cached_property
    def loss(self) -> LossFact | None:
        """What the first optimizer's loss is made of."""
        return self._record.facts.losses[0] if self._record.facts.losses else None

    @cached_property
    def by_reward(self) -> bool:
        """Whether the first loss weighs log-probabilities by rewards: its value tells nothing."""
        return self.loss is not None and any(p.kind == "policy" for p in self.loss.parts)

    @cached_property
    def path(self) -> Trajectory:
        """The first optimizer's loss over the run."""
        return trajectory(self._record)

    @cached_property
    def trouble(self) -> Trouble:
        """Whether and how the run fails, judged from the loss alone."""
        path = self.path
        if path.nonfinite_step is not None and not self._recovers(path):
            text = f"the loss is not finite from step {path.nonfinite_step} on"
            return Trouble(1.0, "nonfinite", text, path.nonfinite_step)
        mute = self._mute()
        if mute:
            return Trouble(0.0, "none", mute, None)
        return self._diverging(path) or self._stuck(path)

    def _mute(self) -> str:
        """Why the loss does not tell how well the run does; empty if it does."""
        if len(self.path.series) < FEW or not math.isfinite(self.path.last):
            return "too few losses were seen to judge the run"
        if self.by_reward:
            return "the loss is a policy's objective, which does not tell how well it does"
        if self.balances:
            return "the loss swings around zero: a difference, which does not tell how well it does"
        return ""

    def _diverging(self, path: Trajectory) -> Trouble | None:
        """A loss that grows, more than its targets do."""
        grown = self._grown_targets
        kinds = ((e.kind, e.after, e.step) for e in self._events)
        step = next(
            (s for k, after, s in kinds if (k, after) == (EventType.LOSS, "diverging")), None
        )
        if step is not None and path.last > path.first * max(grown, 1.0):
            text = f"the loss rises from {path.first:.3g} to {path.last:.3g}"
            return Trouble(1.0, "diverged", text, step)
        if grown > GROWN and path.fall < SMALL_FALL:
            text = f"the targets grew {grown:.3g}-fold, and the loss with them"
            return Trouble(0.0, "none", text, None)
        return None

    @cached_property
    def balances(self) -> bool:
        """Whether the loss is a difference of two scores, as of energies or of a critic."""
        values = self.path.series.finite().values
        turns = np.count_nonzero(np.diff(np.sign(values)))
        custom = self.loss is None or self.loss.kind == "custom"
        return bool(custom and len(values) >= EARLY and turns >= TURNS * len(values))

    @cached_property
    def _grown_targets(self) -> float:
        """By what factor the targets have grown: those of a critic do, and its loss with them.

        The numbers of further classes are no larger targets.
        """
        if self.loss is not None and self.loss.kind in ("cross_entropy", "nll"):
            return 1.0
        mean, std = (self._target(x) for x in (m.B_MEAN, m.B_STD))
        n = min(len(mean), len(std))
        size = np.hypot(mean[:n], std[:n])
        early, late = size[:EARLY], size[-EARLY:]
        return float(np.median(late) / np.median(early)) if n > 2 * EARLY and early.any() else 1.0

    @cached_property
    def plays(self) -> bool:
        """Whether losses of several optimizers pull one score to constants: a game of two nets."""
        asked = [f.target for f in self._record.facts.losses]
        same = all(t is not None and t.distinct == 1 for t in asked)
        return len(asked) > 1 and same

    @property
    def breaks(self) -> bool:
        """Whether the run broke down, and did not only learn little."""
        return self.trouble.kind in ("nonfinite", "diverged")

    def _recovers(self, path: Trajectory) -> bool:
        return bool(np.isfinite(path.series.values[-5:]).all())

    @cached_property
    def _beside(self) -> list[Trajectory]:
        """The losses of further optimizers that train together with the first."""
        names = [f"loss.{fact.index}" for fact in self._record.facts.losses if fact.index]
        further = [trajectory(self._record, name) for name in names]
        end = self.path.series.steps[-1] if len(self.path.series) else 0
        return [p for p in further if len(p.series) > FEW and p.series.steps[0] < end]

    def _stuck(self, path: Trajectory) -> Trouble:
        """Whether a loss that does not grow falls far enough."""
        # A critic at chance is no failure while what it judges learns.
        level = min(map(_unlearnt, (path, *self._beside)))
        if level > 0 and self.plays:
            text = "the losses are those of a game, which do not tell how well it is played"
            return Trouble(0.0, "none", text, None)
        text = f"the loss goes from {path.first:.3g} to {path.last:.3g}"
        if path.gain is not None and path.chance is not None:
            text = (
                f"the loss ends at {path.last:.3g}, where a constant guess gives {path.chance:.3g}"
            )
        kind = "not_learning" if level > 0 else "none"
        return Trouble(level, kind, text, int(path.series.steps[0]) if level > 0 else None)

    @cached_property
    def learnt(self) -> float:
        """How much of what could be learnt was learnt: 0 no more than a trace, 1 nearly all.

        Between the two lies the partial failure, and the task with noise of its own; there
        the loss alone says little, and a cause must show itself otherwise.
        """
        if self.breaks:
            return 0.0
        if self._mute() or self._grown_targets > GROWN:
            return 0.5
        # Nor is all well where the critic alone learns.
        return statistics.fmean(map(_share, (self.path, *self._beside)))

    def _target(self, metric: str) -> Floats:
        return self._record.series(Kind.BATCH, "target", metric).finite().values


def _gained(path: Trajectory) -> tuple[float, float]:
    """The share of a loss that is gone, and the share below which that is next to nothing."""
    return (path.fall, SMALL_FALL) if path.gain is None else (path.gain, LITTLE)


def _unlearnt(path: Trajectory) -> float:
    """How clearly a loss shows that nothing was learnt: 0 to 1."""
    share, least = _gained(path)
    return float(np.clip((least - share) / least, 0.0, 1.0))


def _share(path: Trajectory) -> float:
    """How much of what could be learnt a loss shows to be learnt: 0 to 1."""
    share, least = _gained(path)
    return float(np.clip((share - least) / (MOST - least), 0.0, 1.0))
