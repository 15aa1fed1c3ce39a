"""What the causes look at: a record with the quantities that many of them need."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Kind, LossFact, ModuleFact, ParamFact, Scalar, root_of
from neuraldbg.core.record import Record, Series
from neuraldbg.core.trajectory import Trajectory, trajectory

WEIGHT_LAYERS: Final = frozenset(
    [
        "Linear",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "ConvTranspose1d",
        "ConvTranspose2d",
        "ConvTranspose3d",
        "Bilinear",
        "LSTM",
        "GRU",
        "RNN",
        "LSTMCell",
        "GRUCell",
        "RNNCell",
        "MultiheadAttention",
    ]
)
NORMALISATION: Final = frozenset(
    [
        "BatchNorm1d",
        "BatchNorm2d",
        "BatchNorm3d",
        "SyncBatchNorm",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "InstanceNorm1d",
        "InstanceNorm2d",
        "InstanceNorm3d",
        "LocalResponseNorm",
    ]
)
BATCHNORM: Final = frozenset(["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"])
DROPOUT: Final = frozenset(["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"])
ADAPTIVE: Final = frozenset(
    [
        "Adam",
        "AdamW",
        "Adamax",
        "NAdam",
        "RAdam",
        "Adagrad",
        "Adadelta",
        "RMSprop",
        "Adafactor",
        "SparseAdam",
    ]
)
# Learnt less than this share of the chance level: trouble begins; nothing learnt: full.
LITTLE: Final = 0.15
# Learnt this share of it: what is left may be the noise of the task.
MOST: Final = 0.9
# Without a chance level: the loss fell by less than this share.
SMALL_FALL: Final = 0.10
# Targets that grow so much are a critic's own, and its loss does not tell how well it does.
TURNS: Final = 0.1  # changes of sign over readings; a likelihood passes zero once
GROWN: Final = 3.0
EARLY: Final = 10  # looks that count as early
FEW: Final = 200  # numbers whose median the standard library finds sooner than NumPy


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


class View:
    """A record, its events, and derived quantities, each computed once.

    Args:
        record: What was observed.
        events: The semantic events, in order.
    """

    def __init__(self, record: Record, events: tuple[SemanticEvent, ...]) -> None:
        self.record = record
        self.facts = record.facts
        self.events = events

    # -- facts ------------------------------------------------------------------------

    @cached_property
    def loss(self) -> LossFact | None:
        """What the first optimizer's loss is made of."""
        return self.facts.losses[0] if self.facts.losses else None

    @cached_property
    def by_reward(self) -> bool:
        """Whether the first loss weighs log-probabilities by rewards: its value tells nothing."""
        return self.loss is not None and any(p.kind == "policy" for p in self.loss.parts)

    @cached_property
    def path(self) -> Trajectory:
        """The first optimizer's loss over the run."""
        return trajectory(self.record)

    @cached_property
    def layers(self) -> list[ModuleFact]:
        """Modules with weights, in order of execution."""
        return [x for x in self.record.called() if x.kind in WEIGHT_LAYERS or self._owns(x)]

    def _owns(self, module: ModuleFact) -> bool:
        return module.leaf and any(len(p.shape) >= 2 for p in self.params_of(module.name))

    @cached_property
    def _by_module(self) -> dict[str, list[ParamFact]]:
        out: dict[str, list[ParamFact]] = {}
        for param in self.facts.params:
            out.setdefault(param.module, []).append(param)
        return out

    @cached_property
    def models(self) -> list[str]:
        """The watched models by name; a run of one model has `""`."""
        return self.facts.models

    def root_of(self, module: str) -> str:
        """The watched model that a module belongs to."""
        return root_of(module, self.models)

    def params_of(self, module: str) -> list[ParamFact]:
        """The parameters that a module owns itself."""
        return self._by_module.get(module, [])

    @cached_property
    def weights(self) -> list[ParamFact]:
        """Trainable weight matrices and kernels that an optimizer holds, or the script by hand."""
        by_hand = not self.facts.optimizers
        held = [p for p in self.facts.params if p.optimizer is not None or by_hand]
        return [p for p in held if len(p.shape) >= 2 and p.requires_grad]

    def kinds(self, names: frozenset[str]) -> list[ModuleFact]:
        """The modules of certain classes."""
        return [x for x in self.facts.modules if x.kind in names]

    def note(self, name: str) -> Scalar:
        """A note of the run, or None."""
        return self.facts.run.notes.get(name)

    @cached_property
    def follows_itself(self) -> bool:
        """Whether a model is asked without gradient about once a step: it makes the targets."""
        passes, steps = self.count(m.N_EVAL_FORWARDS), self.count(m.N_BACKWARDS)
        return steps > 0 and passes >= 0.5 * steps

    def count(self, name: str) -> int:
        """A counted note of the run; 0 if it was never noted."""
        value = self.note(name)
        return int(value) if isinstance(value, (int, float)) else 0

    def setting(self, name: str, default: float = float("nan")) -> float:
        """A numeric setting of the first optimizer's first group."""
        for optimizer in self.facts.optimizers[:1]:
            for group in optimizer.groups[:1]:
                value = group.get(name)
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    return float(value)
        return default

    @property
    def adaptive(self) -> bool:
        """Whether the first optimizer rescales each parameter's gradient."""
        kinds = [o.kind for o in self.facts.optimizers]
        return bool(kinds) and kinds[0] in ADAPTIVE

    # -- series -------------------------------------------------------------------------

    def module(self, name: str, metric: str) -> Series:
        """A metric of a module."""
        return self.record.series(Kind.MODULE, name, metric)

    def param(self, name: str, metric: str) -> Series:
        """A metric of a parameter."""
        return self.record.series(Kind.PARAM, name, metric)

    def batch(self, name: str, metric: str) -> Series:
        """A metric of an input or target."""
        return self.record.series(Kind.BATCH, name, metric)

    @property
    def target_scale(self) -> float:
        """Root mean square of the usual target; NaN if none was read."""
        return math.hypot(*(self.batch("target", x).median() for x in (m.B_MEAN, m.B_STD)))

    def usual(self, series: Series, looks: int | None = None) -> float:
        """Median of the finite readings (of the first looks only); NaN if none."""
        values = series.finite().values[:looks]
        if not len(values):
            return float("nan")
        # NumPy takes ten times as long as the standard library for a few numbers.
        few = len(values) <= FEW
        return statistics.median(values.tolist()) if few else float(np.median(values))

    @cached_property
    def ratios(self) -> dict[str, float]:
        """Median update-to-weight ratio of each weight matrix over the early looks."""
        out = {}
        for p in self.weights:
            if p.init_rms:
                value = self.usual(self.param(p.name, m.P_RATIO), EARLY)
                if math.isfinite(value):
                    out[p.name] = value
        return out

    @cached_property
    def pace(self) -> float:
        """The typical update-to-weight ratio: the median over the weights; NaN if none was read."""
        return statistics.median(self.ratios.values()) if self.ratios else math.nan

    @cached_property
    def lr(self) -> Series:
        """The learning rate of the first group over the run."""
        return self.record.series(Kind.OPTIMIZER, "0.0", m.O_LR)

    # -- symptoms -------------------------------------------------------------------------

    def where(self, kind: EventType, after: str) -> list[str]:
        """Places of events of a kind that ended in a state, in order of step."""
        found = [e.where for e in self.events if e.kind == kind and e.after == after]
        return list(dict.fromkeys(found))

    def first(self, kind: EventType, after: str) -> SemanticEvent | None:
        """The first event of a kind that ended in a state."""
        return next((e for e in self.events if e.kind == kind and e.after == after), None)

    @cached_property
    def trouble(self) -> Trouble:
        """Whether and how the run fails, judged from the loss alone."""
        path = self.path
        if path.nonfinite_step is not None and not self._recovers(path):
            text = f"the loss is not finite from step {path.nonfinite_step} on"
            return Trouble(1.0, "nonfinite", text, path.nonfinite_step)
        if len(path.series) < 5 or not math.isfinite(path.last):
            return Trouble(0.0, "none", "too few losses were seen to judge the run", None)
        if self.by_reward:
            text = "the loss is a policy's objective, which does not tell how well it does"
            return Trouble(0.0, "none", text, None)
        if self.balances:
            text = "the loss swings around zero: a difference, which does not tell how well it does"
            return Trouble(0.0, "none", text, None)
        diverging = self.first(EventType.LOSS, "diverging")
        if diverging is not None and path.last > path.first * max(self._grown_targets, 1.0):
            text = f"the loss rises from {path.first:.3g} to {path.last:.3g}"
            return Trouble(1.0, "diverged", text, diverging.step)
        if self._grown_targets > GROWN and path.fall < SMALL_FALL:
            text = f"the targets grew {self._grown_targets:.3g}-fold, and the loss with them"
            return Trouble(0.0, "none", text, None)
        return self._learning(path)

    @cached_property
    def balances(self) -> bool:
        """Whether the loss is a difference of two scores, as of energies or of a critic."""
        values = self.path.series.finite().values
        turns = np.count_nonzero(np.diff(np.sign(values)))
        custom = self.loss is None or self.loss.kind == "custom"
        return bool(custom and len(values) >= EARLY and turns >= TURNS * len(values))

    @cached_property
    def _grown_targets(self) -> float:
        """By what factor the targets have grown: those of a critic do, and its loss with them."""
        mean, std = (self.batch("target", x).finite().values for x in (m.B_MEAN, m.B_STD))
        n = min(len(mean), len(std))
        size = np.hypot(mean[:n], std[:n])
        early, late = size[:EARLY], size[-EARLY:]
        return float(np.median(late) / np.median(early)) if n > 2 * EARLY and early.any() else 1.0

    @cached_property
    def plays(self) -> bool:
        """Whether losses of several optimizers pull one score to constants: a game of two nets."""
        asked = [f.target for f in self.facts.losses]
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
        names = [f"loss.{fact.index}" for fact in self.facts.losses if fact.index]
        further = [trajectory(self.record, name) for name in names]
        end = self.path.series.steps[-1] if len(self.path.series) else 0
        return [p for p in further if len(p.series) > 5 and p.series.steps[0] < end]

    def _learning(self, path: Trajectory) -> Trouble:
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
        if len(self.path.series) < 5 or self.by_reward or self.balances:
            return 0.5
        if self._grown_targets > GROWN:
            return 0.5
        # Nor is all well where the critic alone learns.
        return statistics.fmean(map(_share, (self.path, *self._beside)))

    def fails(self, weight: float = 2.0, against: float = 4.0) -> Evidence:
        """The run's failure as evidence for a cause that would make it fail.

        Args:
            weight: Support in nats if it clearly fails.
            against: Opposition in nats if it learns all there is to learn.
        """
        value = weight * self.trouble.level - against * self.learnt
        return Evidence(self.trouble.text, value, where="loss", step=self.trouble.step)


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


def drop_probability(module: ModuleFact) -> float:
    """The probability of a dropout module; 0 for others."""
    value = module.config.get("p", 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0
