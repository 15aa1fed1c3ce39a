"""Records made by hand: a healthy run, into which a test injects one fault's evidence.

A `Draft` is what a spoke would have written down. It starts healthy (`classifier`,
`regression`, `deep`), and each method changes one thing and returns the draft:

    record = classifier().of_param("*.weight", update_ratio=0.9).diverges().build()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import (
    Channel,
    Facts,
    Gap,
    Kind,
    LossFact,
    LossPart,
    ModuleFact,
    OptimizerFact,
    ParamFact,
    RunFact,
    Scalar,
    TensorFact,
)
from neuraldbg.core.record import Floats, Record, Series

STEPS = 200
EVERY = 4  # a look on every fourth step
CLASSES = 10
BATCH = 32

Values = float | Sequence[float] | Floats


def series(values: Sequence[float] | Floats, every: int = 1) -> Series:
    """Readings on every step, or on every `every`-th one."""
    numbers = np.asarray(values, np.float64)
    return Series(np.arange(len(numbers), dtype=np.int64) * every, numbers)


class Draft:
    """A record in the making.

    Args:
        steps: Optimizer steps of the run; a look is taken on every fourth.
    """

    def __init__(self, steps: int = STEPS) -> None:
        self.steps = steps
        self.run = RunFact(id="run", command=("train.py",), steps=steps, finished="ok")
        self.modules: list[ModuleFact] = []
        self.params: list[ParamFact] = []
        self.optimizers: list[OptimizerFact] = []
        self.losses: list[LossFact] = []
        self.gaps: list[Gap] = []
        self.channels: dict[Channel, Series] = {}

    def build(self) -> Record:
        """The record. Modules run in the order in which they are listed."""
        modules = [replace(x, order=i if x.calls else None) for i, x in enumerate(self.modules)]
        facts = Facts(
            self.run,
            tuple(modules),
            tuple(self.params),
            tuple(self.optimizers),
            tuple(self.losses),
            tuple(self.gaps),
        )
        return Record(facts, dict(self.channels))

    # -- what is there ------------------------------------------------------------------

    def module(
        self,
        name: str,
        kind: str,
        *,
        before: str | None = None,
        leaf: bool = True,
        calls: int = 1,
        **config: Scalar,
    ) -> Draft:
        """Add a healthy module, at the end or before another."""
        fact = ModuleFact(
            name, kind, leaf, training=True, calls=calls, config=config, caller=_parent(name)
        )
        names = [x.name for x in self.modules]
        self.modules.insert(names.index(before) if before else len(names), fact)
        if leaf:
            rectifier = kind == "ReLU"
            self.of_module(
                name,
                act_mean=0.3 if rectifier else 0.0,
                act_rms=0.6 if rectifier else 0.9,
                act_absmax=3.0,
                act_low=0.0 if rectifier else -3.0,
                act_high=3.0,
                act_zero=0.5 if rectifier else 0.0,
                act_negative_units=0.05,
                act_constant_units=0.05 if rectifier else 0.0,
                act_flat=0.0,
                act_nonfinite=0.0,
                grad_mean=0.0,
                grad_rms=2e-3,
                grad_absmax=2e-2,
                grad_zero=0.0,
                grad_nonfinite=0.0,
            )
        return self

    def layer(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kind: str = "Linear",
        *,
        before: str | None = None,
    ) -> Draft:
        """Add a healthy layer with a weight and a bias, at the end or before another."""
        self.module(name, kind, before=before, in_features=inputs, out_features=outputs)
        self.of_module(
            name,
            in_rms=0.6,
            in_absmax=3.0,
            in_zero=0.5,
            in_dead_units=0.0,
            in_flat=0.0,
            in_nonfinite=0.0,
        )
        rms = 0.58 / math.sqrt(inputs)
        self.param(f"{name}.weight", (outputs, inputs), rms=rms, fan_in=inputs, row_spread=1.0)
        return self.param(f"{name}.bias", (outputs,), rms=rms)

    def param(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        rms: float = 0.1,
        fan_in: int | None = None,
        row_spread: float | None = None,
    ) -> Draft:
        """Add a healthy parameter that the first optimizer holds."""
        self.params.append(
            ParamFact(
                name,
                shape,
                optimizer=0,
                group=0,
                reached=True,
                init_mean=0.0,
                init_rms=rms,
                init_absmax=3 * rms,
                row_spread=row_spread,
                fan_in=fan_in,
            )
        )
        return self.of_param(
            name,
            grad_norm=0.5,
            grad_none=0.0,
            grad_nonfinite=0.0,
            weight_norm=rms * math.sqrt(math.prod(shape)),
            update_norm=2e-3,
            update_ratio=3e-3,
            still=0.0,
            update_align=0.8,
            grad_cosine=0.4,
        )

    def optimizer(self, kind: str, **settings: Scalar) -> Draft:
        """Add an optimizer with one group."""
        index = len(self.optimizers)
        self.optimizers.append(
            OptimizerFact(index, kind, (settings,), len(self.params), steps=self.steps)
        )
        lr = settings["lr"]
        assert isinstance(lr, float)
        return self.of_optimizer(f"{index}.0", lr=np.full(self.steps, lr)).of_optimizer(
            str(index), grad_carried=0.0
        )

    def notes(self, **notes: Scalar) -> Draft:
        """Set notes of the run."""
        self.run = replace(self.run, notes={**self.run.notes, **notes})
        return self

    # -- static facts, changed ------------------------------------------------------------

    def change_module(self, pattern: str, **fields: Any) -> Draft:
        """Change fields of the modules whose names fit; `config` is added to."""

        def changed(x: ModuleFact) -> ModuleFact:
            config = {**x.config, **fields.get("config", {})}
            return replace(x, **{**fields, "config": config})

        self.modules = [changed(x) if fnmatchcase(x.name, pattern) else x for x in self.modules]
        return self

    def change_param(self, pattern: str, **fields: Any) -> Draft:
        """Change fields of the parameters whose names fit."""
        self.params = [
            replace(p, **fields) if fnmatchcase(p.name, pattern) else p for p in self.params
        ]
        return self

    def change_optimizer(self, kind: str, **settings: Scalar) -> Draft:
        """Put another optimizer in the place of the first."""
        self.optimizers = []
        return self.optimizer(kind, **settings)

    def change_loss(self, **fields: Any) -> Draft:
        """Change fields of the first loss."""
        self.losses[0] = replace(self.losses[0], **fields)
        return self

    # -- series -----------------------------------------------------------------------------

    def put(self, kind: Kind, name: str, metric: str, values: Values) -> Draft:
        """Set a series: one number for all looks, one a look, or one a step."""
        looks = math.ceil(self.steps / EVERY)
        numbers = np.full(looks, values) if np.ndim(values) == 0 else np.asarray(values)
        every = EVERY if len(numbers) == looks else 1
        self.channels[Channel(kind, name, metric)] = series(numbers, every)
        return self

    def of_module(self, pattern: str, **metrics: Values) -> Draft:
        """Set series of the modules whose names fit."""
        return self._of(Kind.MODULE, [x.name for x in self.modules], pattern, metrics)

    def of_param(self, pattern: str, **metrics: Values) -> Draft:
        """Set series of the parameters whose names fit."""
        return self._of(Kind.PARAM, [p.name for p in self.params], pattern, metrics)

    def of_batch(self, name: str, **metrics: Values) -> Draft:
        """Set series of an input or target."""
        return self._of(Kind.BATCH, [name], name, metrics)

    def of_optimizer(self, name: str, **metrics: Values) -> Draft:
        """Set series of an optimizer (`0`) or a group (`0.0`)."""
        return self._of(Kind.OPTIMIZER, [name], name, metrics)

    def _of(self, kind: Kind, names: list[str], pattern: str, metrics: dict[str, Values]) -> Draft:
        fitting = [n for n in names if fnmatchcase(n, pattern)]
        assert fitting, f"nothing is named {pattern}"
        for name in fitting:
            for metric, values in metrics.items():
                self.put(kind, name, metric, values)
        return self

    def without(self, *metrics: str) -> Draft:
        """Take metrics away everywhere: they were never measured."""
        self.channels = {c: s for c, s in self.channels.items() if c.metric not in metrics}
        return self

    def without_series(self, pattern: str) -> Draft:
        """Take away all readings of the parameters whose names fit."""
        self.channels = {
            c: s
            for c, s in self.channels.items()
            if not (c.kind == Kind.PARAM and fnmatchcase(c.name, pattern))
        }
        return self

    # -- what the loss does -----------------------------------------------------------------

    def loses(self, values: Sequence[float] | Floats) -> Draft:
        """Set the loss of each step."""
        assert len(values) == self.steps
        return self.put(Kind.LOSS, "loss", m.L_VALUE, np.asarray(values, np.float64))

    def falls(self, first: float, last: float) -> Draft:
        """The loss falls steadily and settles, with the noise of batches."""
        way = np.exp(-5 * np.arange(self.steps) / self.steps)
        return self.loses((last + (first - last) * way) * _noise(self.steps))

    def stays(self, level: float = math.log(CLASSES)) -> Draft:
        """The loss never leaves its level: nothing is learnt."""
        return self.loses(level * _noise(self.steps))

    def diverges(self, first: float = math.log(CLASSES), last: float = 1e4) -> Draft:
        """The loss falls for a moment, then grows without bound."""
        rise = np.geomspace(first, last, self.steps - 5)
        return self.loses(np.concatenate([first * np.geomspace(1, 0.5, 5), rise]))

    def breaks(self, step: int) -> Draft:
        """The loss is NaN from a step on."""
        values = self.channels[Channel(Kind.LOSS, "loss", m.L_VALUE)].values.copy()
        values[step:] = math.nan
        return self.loses(values)


def classifier(steps: int = STEPS) -> Draft:
    """A healthy run: a three-layer MLP whose loss falls from ln 10 to 0.1."""
    draft = Draft(steps).module("", "Net", leaf=False)
    draft.layer("fc1", 20, 64).module("act1", "ReLU")
    draft.layer("fc2", 64, 64).module("act2", "ReLU")
    draft.layer("fc3", 64, CLASSES)
    draft.of_module("fc1", in_rms=1.0, in_zero=0.0, in_absmax=4.0)
    draft.losses.append(
        LossFact(
            ops=("NllLoss", "LogSoftmax", "Addmm", "Relu", "T", "Addmm", "Relu", "T", "Addmm"),
            kind="cross_entropy",
            reduction="mean",
            prediction=TensorFact((BATCH, CLASSES), "float32", -3.0, 3.0, 0.0, 0.9),
            target=TensorFact(
                (BATCH,), "int64", 0.0, CLASSES - 1.0, 4.5, 2.9, integral=True, distinct=CLASSES
            ),
            last_op="Addmm",
            parts=(LossPart("cross_entropy", "mean", 1.0, BATCH),),
            batch=BATCH,
        )
    )
    draft.of_batch(
        "target",
        mean=4.5 + 0.4 * (_noise(_looks(draft)) - 1) / 0.02,
        std=2.9,
        low=0.0,
        high=CLASSES - 1.0,
        absmax=CLASSES - 1.0,
        nonfinite=0.0,
        size=float(BATCH),
        distinct=float(CLASSES),
        majority=0.2,
        entropy=2.15,
        transitions=0.9,
    )
    return _common(draft).falls(math.log(CLASSES), 0.1)


def regression(steps: int = STEPS) -> Draft:
    """A healthy run: the same MLP with one output, fitted to standardised targets."""
    draft = classifier(steps)
    draft.change_module("fc3", config={"out_features": 1})
    draft.change_param("fc3.weight", shape=(1, 64)).change_param("fc3.bias", shape=(1,))
    shape = (BATCH, 1)
    draft.change_loss(
        ops=("MseLoss", "Addmm", "Relu", "T", "Addmm", "Relu", "T", "Addmm"),
        kind="mse",
        prediction=TensorFact(shape, "float32", -2.0, 2.0, 0.0, 0.8),
        target=TensorFact(shape, "float32", -2.5, 2.5, 0.0, 1.0, integral=False, distinct=BATCH),
        parts=(LossPart("mse", "mean", 1.0, BATCH),),
    )
    draft.of_batch(
        "target",
        mean=0.1 * (_noise(_looks(draft)) - 1) / 0.02,
        std=1.0,
        low=-2.5,
        high=2.5,
        absmax=2.5,
        distinct=float(BATCH),
        majority=1 / BATCH,
        entropy=math.log(BATCH),
        transitions=1.0,
        sample_std=1.0,
        feature_rms=1.0,
        feature_spread=1.0,
    )
    return draft.falls(1.0, 0.05)


def deep(depth: int, activation: str = "ReLU") -> Draft:
    """A healthy run of a plain stack of `depth` layers with an activation between them."""
    draft = classifier()
    for i in range(depth - 3):
        name = f"more{i}"
        draft.layer(name, 64, 64, before="fc2").module(f"{name}_act", activation, before="fc2")
    return draft.change_module("act?", kind=activation)


def healthy_record() -> Record:
    """The record of `classifier`."""
    return classifier().build()


def _common(draft: Draft) -> Draft:
    looks = _looks(draft)
    draft.of_batch(
        "input",
        mean=0.02 * (_noise(looks) - 1) / 0.02,
        std=1.0,
        low=-4.0,
        high=4.0,
        absmax=4.0 * _noise(looks),
        nonfinite=0.0,
        size=float(BATCH),
        feature_spread=1.3,
        feature_rms=1.2,
        sample_std=0.98,
        outlier=1.5,
        fingerprint=np.arange(looks) * 7919.0,
    )
    draft.optimizer("SGD", lr=0.05, momentum=0.9, weight_decay=0.0, dampening=0.0)
    for metric, value in (("prediction_mean", 0.0), ("prediction_std", 0.9)):
        draft.put(Kind.LOSS, "prediction", metric, value)
    draft.put(Kind.RUN, "run", m.R_BACKWARDS, np.ones(draft.steps))
    return draft.notes(backwards=draft.steps, optimizer_steps=draft.steps)


def _looks(draft: Draft) -> int:
    return math.ceil(draft.steps / EVERY)


def _noise(count: int) -> Floats:
    """Factors around one with a spread of 2 %, the same on every call."""
    return 1 + 0.02 * np.random.default_rng(0).standard_normal(count)


def _parent(name: str) -> str | None:
    return name.rpartition(".")[0] if name else None
