"""What is known about a run: sites, static facts, gaps and cost.

Static facts are what does not change from step to step: the module tree, which
parameter sits in which optimizer, what the loss is made of. They are written once
(and again when they change) and are evidence in their own right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Scalar = str | int | float | bool | None


class Kind(StrEnum):
    """What kind of thing a site is."""

    MODULE = "module"
    PARAM = "param"
    BATCH = "batch"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    RUN = "run"


class Site(NamedTuple):
    """A place in the training loop that numbers are read from, by the user's own name."""

    kind: Kind
    name: str


class Channel(NamedTuple):
    """One series of numbers: a metric (see `core.metrics`) read at a site."""

    kind: Kind
    name: str
    metric: str

    @property
    def site(self) -> Site:
        """The site without the metric."""
        return Site(self.kind, self.name)


@dataclass(frozen=True, slots=True)
class ModuleFact:
    """One module of the model.

    Attributes:
        name: Dotted name as in `named_modules()`; the root is `""`.
        kind: Class name, e.g. `Linear`.
        leaf: Whether it has no child modules.
        order: Rank of its first call in the first observed forward pass, or None if
            it was never called.
        training: Its `training` flag during the training forward passes.
        calls: Calls in the first observed step.
        config: Settings worth knowing (`p` of dropout, features, normalised shape...).
        registered: False for a module that the model calls but does not own, e.g.
            one kept in a plain Python list.
        caller: The name of the nearest enclosing module.
    """

    name: str
    kind: str
    leaf: bool = True
    order: int | None = None
    training: bool | None = None
    calls: int = 0
    config: Mapping[str, Scalar] = field(default_factory=dict)
    registered: bool = True
    caller: str | None = None


@dataclass(frozen=True, slots=True)
class ParamFact:
    """One parameter.

    Attributes:
        name: Dotted name as in `named_parameters()`.
        shape: Its shape.
        dtype: E.g. `float32`.
        requires_grad: Whether it wants a gradient.
        optimizer: Index of the optimizer that holds it, or None.
        group: Index of the parameter group in that optimizer.
        reached: Whether the backward graph of the loss led to it; None if never seen.
        registered: False if no watched module owns it by name.
        init_mean, init_rms, init_absmax: Statistics before the first update.
        row_spread: Root mean square distance of the rows from their mean row, over the
            weight's own scale; 0 means that all units start equal. None for vectors.
        fan_in: Inputs per unit, or None.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    requires_grad: bool = True
    optimizer: int | None = None
    group: int | None = None
    reached: bool | None = None
    registered: bool = True
    init_mean: float | None = None
    init_rms: float | None = None
    init_absmax: float | None = None
    row_spread: float | None = None
    fan_in: int | None = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for side in self.shape:
            n *= side
        return n

    @property
    def module(self) -> str:
        """The dotted name of the owning module."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class OptimizerFact:
    """One optimizer: its class, the settings of each parameter group, what it holds.

    Attributes:
        index: Order of appearance.
        kind: Class name, e.g. `AdamW`.
        groups: The numeric settings of each group at the first step.
        params: How many parameter tensors it holds.
        foreign: How many of them no trained model owns (stale or of another model).
        steps: Steps taken.
    """

    index: int
    kind: str
    groups: tuple[Mapping[str, Scalar], ...] = ()
    params: int = 0
    foreign: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class TensorFact:
    """Shape, dtype and range of a tensor met at the loss.

    Attributes:
        low, high: Smallest and largest finite value, or None.
        integral: Whether every value is a whole number.
        distinct: Number of distinct values (counted to 1,000), or None.
        sums_to_one: Whether the last dimension (or dimension 1) sums to one everywhere
            with no negative entry: the mark of a softmax.
        nonfinite: Number of NaN and infinite entries.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None
    integral: bool | None = None
    distinct: int | None = None
    sums_to_one: bool | None = None
    nonfinite: int = 0


@dataclass(frozen=True, slots=True)
class LossPart:
    """One of the terms that a loss adds up.

    Attributes:
        kind: As `LossFact.kind`, `policy` (log-probabilities of what was chosen, each weighed
            by a constant), `divergence` (of a normal distribution from another: zero where they
            are one), or the operation's name in lower case.
        reduction: `mean`, `sum`, `normalised_sum` (divided by a count), `mean_of_sums`
            (over features, then samples) or `none`.
        factor: The constant it is multiplied by; None if that is not a constant.
        entries: Numbers that were reduced.
        count: Of a `normalised_sum`: what it is divided by; None if that is unknown.
        lean: Of a `policy`: its mean weight over its mean absolute weight, -1..1.
        spread: Of an error against targets: their standard deviation; None if they are unknown.
        smoothing: Of a cross-entropy: the share of each label that is spread over all classes.
        classes: How many these are; 0 where nothing is smoothed.
    """

    kind: str
    reduction: str
    factor: float | None = 1.0
    entries: int = 0
    lean: float | None = None
    spread: float | None = None
    smoothing: float = 0.0
    classes: int = 0
    count: float | None = None


# Kinds of loss, as `LossFact.kind` tells them.
REGRESSION = frozenset({"mse", "l1", "smooth_l1"})
BINARY = frozenset({"bce", "bce_with_logits"})


@dataclass(frozen=True, slots=True)
class LossFact:
    """What the loss is made of, read off the autograd graph.

    Attributes:
        index: The optimizer whose steps follow this loss.
        ops: Names of the autograd nodes from the loss inwards (without `Backward0`), in
            breadth-first order, at most 64.
        kind: `cross_entropy`, `nll`, `bce`, `bce_with_logits`, `mse`, `l1`,
            `smooth_l1`, `kl_div`, `custom` or `compiled` (not visible).
        reduction: `mean`, `sum` or `none` where it can be told.
        prediction, target: The tensors that meet in the loss, where they can be had.
        broadcast: The two shapes that were silently broadcast, e.g. `((32, 1), (32,))`.
        last_op: The node that made the prediction: `Addmm`, `Softmax`, `Relu`, `Sigmoid`.
        parts: The terms that are added up.
        batch: Samples in the batch.
        weighted: Whether samples or classes are weighted in it.
        ones: Of a softmax that is compared with zeros and ones: the fewest and the most ones
            of a sample; None for others.
        maximised: Whether it falls only where each error in it grows.
    """

    index: int = 0
    ops: tuple[str, ...] = ()
    kind: str = "custom"
    reduction: str | None = None
    prediction: TensorFact | None = None
    target: TensorFact | None = None
    broadcast: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    last_op: str | None = None
    parts: tuple[LossPart, ...] = ()
    batch: int | None = None
    weighted: bool = False
    ones: tuple[int, int] | None = None
    maximised: bool = False


@dataclass(frozen=True, slots=True)
class RunFact:
    """The run itself.

    Attributes:
        finished: `ok`, `exception`, `interrupted`, or None while (or because) it was cut off.
        notes: Further facts by name, e.g. counts of calls (`backwards`, `zero_grads`),
            `autocast`, `scaler`, the exception's text. Names are in `core.metrics`.
    """

    id: str
    command: tuple[str, ...] = ()
    cwd: str = ""
    started: str = ""
    neuraldbg: str = ""
    python: str = ""
    torch: str = ""
    device: str = "cpu"
    compiled: bool = False
    backend: str | None = None
    world_size: int = 1
    rank: int = 0
    seed: int | None = None
    steps: int = 0
    finished: str | None = None
    notes: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that could not be observed, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Overhead:
    """What watching cost: our seconds, and their share of the run's own time."""

    ratio: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """All static facts of one run."""

    run: RunFact
    modules: tuple[ModuleFact, ...] = ()
    params: tuple[ParamFact, ...] = ()
    optimizers: tuple[OptimizerFact, ...] = ()
    losses: tuple[LossFact, ...] = ()
    gaps: tuple[Gap, ...] = ()
    overhead: Overhead = Overhead()

    @property
    def models(self) -> list[str]:
        """The watched models by name; a run of one model has `""`."""
        return [x.name for x in self.modules if x.caller is None]


def root_of(name: str, models: Iterable[str]) -> str:
    """The watched model, of these, that a module or parameter belongs to."""
    own = [x for x in models if not x or name == x or name.startswith(x + ".")]
    return max(own, key=len, default="")
