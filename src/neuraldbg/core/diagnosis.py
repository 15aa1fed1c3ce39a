"""The answer: a verdict, ranked hypotheses, and the evidence behind each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Facts, Gap, Overhead, Scalar

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation and how much it speaks for (or against) a cause.

    Attributes:
        text: A sentence with its numbers, for people.
        weight: Log-likelihood ratio in nats: positive supports, negative opposes.
        where: The site it was seen at, if any.
        step: The first step it was seen at, if any.
        values: The numbers by name.
    """

    text: str
    weight: float
    where: str | None = None
    step: int | None = None
    values: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the way from cause to symptom; `event` is an event's id, or None."""

    text: str
    event: str | None = None


@dataclass(frozen=True, slots=True)
class Coupling:
    """Two events joined by a mechanism, with how well their numbers agree (0..1)."""

    source: str
    target: str
    mechanism: str
    agreement: float
    text: str


@dataclass(frozen=True, slots=True)
class CausalHypothesis:
    """A possible root cause.

    Attributes:
        cause: Id from the vocabulary of causes.
        confidence: Calibrated probability, 0..1.
        where: Modules or parameters, the most telling first.
        first_step: Where it began, if it has a beginning.
        summary: One sentence.
        chain: From the cause to what the user saw.
        evidence, against: What speaks for it, and against.
        repair: What to change.
        experiment: The outcome of an intervention, or None.
    """

    cause: str
    confidence: float
    where: tuple[str, ...] = ()
    first_step: int | None = None
    summary: str = ""
    chain: tuple[Link, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    repair: str = ""
    experiment: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What NeuralDBG concludes about a run.

    Attributes:
        facts: The static facts of the run.
        verdict: `healthy`, `suspect` or `failed`; `healthy` exactly when there is no
            hypothesis.
        hypotheses: Ranked, the best first.
        events: Every semantic event, in order of step.
        couplings: Pairs of events with the mechanism that joins them.
        gaps: What could not be observed.
        overhead: What watching cost.
        headline: What the run did, in one sentence.
        began: The first step of the training it tells of, where several follow one another.
        source: The run file it was made from, if any.
    """

    facts: Facts
    verdict: str
    hypotheses: tuple[CausalHypothesis, ...] = ()
    events: tuple[SemanticEvent, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    gaps: tuple[Gap, ...] = ()
    overhead: Overhead = Overhead()
    headline: str = ""
    began: int = 0
    source: Path | None = field(default=None, compare=False)

    def verify(
        self, train: Callable[[], object], *, budget: float = 120.0, seeds: int = 3
    ) -> Diagnosis:
        """Test the leading causes by experiment, where the training is a function.

        The function is called again and again in this process: unchanged, and with one
        thing changed. For a script, use `neuraldbg verify`.

        Args:
            train: Builds model, data and optimizer anew, and trains; takes no arguments.
            budget: Seconds for all trials.
            seeds: Replicates at most.

        Returns:
            The diagnosis with its hypotheses weighed again, and their `experiment` filled.

        Raises:
            UsageError: `train` is no function, or there is no run file to compare with.
        """
        from neuraldbg.experiments.notebook import verify

        return verify(self, train, budget=budget, seeds=seeds)

    def to_json(self) -> str:
        """The diagnosis as JSON, schema version 1, without NaN or Infinity tokens."""
        from neuraldbg.report.json import dumps

        return dumps(self)

    def __str__(self) -> str:
        from neuraldbg.report.text import render

        return render(self)

    def __repr__(self) -> str:
        best = self.hypotheses[0] if self.hypotheses else None
        cause = f", {best.cause} {best.confidence:.2f}" if best else ""
        return f"Diagnosis({self.verdict}{cause}, {len(self.events)} events)"

    def _repr_html_(self) -> str:
        from neuraldbg.report.notebook import fragment

        return fragment(self)
