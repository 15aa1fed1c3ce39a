"""The knowledge: one declaration for each root cause, in a file of its family.

A cause is a `Cause` registered by the decorator `cause`, whose function weighs the
evidence in a `View`. Adding a file to this package adds its causes; other packages add
theirs through the entry point group `neuraldbg.causes`: importing what it names registers
them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from neuraldbg.core import plugins
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.view import View


@dataclass(frozen=True, slots=True)
class Finding:
    """What a cause found in a run.

    Attributes:
        evidence: Observations for (positive weight) and against (negative).
        where: Modules or parameters, the most telling first.
        first_step: Where it begins.
        summary: One sentence with the user's own names and numbers.
        repair: What to change; empty for the declaration's own.
    """

    evidence: tuple[Evidence, ...]
    where: tuple[str, ...] = ()
    first_step: int | None = None
    summary: str = ""
    repair: str = ""


Weigh = Callable[[View], Finding | None]


@dataclass(frozen=True, slots=True)
class Cause:
    """A root cause.

    Attributes:
        id: Its name in the public vocabulary.
        title: What is wrong, in a sentence.
        explains: Symptoms that it produces (see `core.symptoms`).
        chain: The mechanism, from the cause to what the user sees.
        repair: What to change.
        experiment: The change of one thing under which the symptom must vanish, or None.
        rivals: Cause id -> what tells the two apart.
        references: Where the knowledge comes from.
        weigh: Returns None if the prerequisites are not met.
        family: Module that declares it.
        prior: Log-odds before any evidence.
        yields_to: Causes further upstream that, where they hold, bring this one's evidence
            about by themselves.
        needs_update: Whether it can show after the first optimizer step at the earliest.
    """

    id: str
    title: str
    explains: frozenset[str]
    chain: tuple[str, ...]
    repair: str
    experiment: str | None
    rivals: dict[str, str]
    references: tuple[str, ...]
    weigh: Weigh
    family: str
    prior: float
    yields_to: frozenset[str]
    needs_update: bool


# Log-odds of a cause before any evidence: about one run in fifty-five has it.
PRIOR = -4.0
CAUSES: dict[str, Cause] = {}


def cause(
    id: str,
    title: str,
    *,
    explains: str = "",
    chain: tuple[str, ...] = (),
    repair: str,
    experiment: str | None = None,
    rivals: dict[str, str] | None = None,
    references: tuple[str, ...] = (),
    prior: float = PRIOR,
    yields_to: str = "",
    needs_update: bool = False,
) -> Callable[[Weigh], Weigh]:
    """Register a cause; the decorated function weighs the evidence for it."""

    def register(weigh: Weigh) -> Weigh:
        CAUSES[id] = Cause(
            id=id,
            title=title,
            explains=frozenset(explains.split()),
            chain=chain,
            repair=repair,
            experiment=experiment,
            rivals=rivals or {},
            references=references,
            weigh=weigh,
            family=weigh.__module__.rpartition(".")[2],
            prior=prior,
            yields_to=frozenset(yields_to.split()),
            needs_update=needs_update,
        )
        return weigh

    return register


def all_causes() -> dict[str, Cause]:
    """Every registered cause by id; imports the families on first use."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    plugins.load(plugins.CAUSES)
    return CAUSES


def evidence(
    text: str,
    weight: float,
    where: str | None = None,
    step: int | None = None,
    **values: float | int | str | None,
) -> Evidence:
    """Shorthand for one observation."""
    return Evidence(text, weight, where, step, values)
