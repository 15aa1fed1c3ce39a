"""What the causes look at: a record with the quantities that many of them need."""

from __future__ import annotations

import math
import statistics
from functools import cached_property
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Kind, LossFact, ModuleFact, ParamFact, Scalar, root_of
from neuraldbg.core.learning import EARLY, Learning, Trouble
from neuraldbg.core.record import Record, Series
from neuraldbg.core.trajectory import Trajectory

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
FEW: Final = 200  # numbers whose median the standard library finds sooner than NumPy


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
    def learning(self) -> Learning:
        """What the losses say of how well the run learns."""
        return Learning(self.record, self.events)

    @property
    def loss(self) -> LossFact | None:
        """What the first optimizer's loss is made of."""
        return self.learning.loss

    @property
    def path(self) -> Trajectory:
        """The first optimizer's loss over the run."""
        return self.learning.path

    @property
    def trouble(self) -> Trouble:
        """Whether and how the run fails, judged from the loss alone."""
        return self.learning.trouble

    @property
    def learnt(self) -> float:
        """How much of what could be learnt was learnt, 0 to 1 (`Learning.learnt`)."""
        return self.learning.learnt

    @property
    def breaks(self) -> bool:
        """Whether the run broke down, and did not only learn little."""
        return self.learning.breaks

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

    def fails(self, weight: float = 2.0, against: float = 4.0) -> Evidence:
        """The run's failure as evidence for a cause that would make it fail.

        Args:
            weight: Support in nats if it clearly fails.
            against: Opposition in nats if it learns all there is to learn.
        """
        value = weight * self.trouble.level - against * self.learnt
        return Evidence(self.trouble.text, value, where="loss", step=self.trouble.step)


def drop_probability(module: ModuleFact) -> float:
    """The probability of a dropout module; 0 for others."""
    value = module.config.get("p", 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0
