"""Mutation operators: each changes one thing of a healthy plan and is its own label.

A fault is a function from a plan and a strength to the plan with the fault in it, or to
None where it does not apply. The decorator `fault` registers it under the root cause that
it injects. Adding a file to this package adds its faults.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from neuraldbg.testing.plan import Course, Plan

Strength = float | str
Change = Callable[[Plan, Strength], Plan | None]
Shows = Callable[[Plan, Course], bool]


def fails(plan: Plan, course: Course) -> bool:
    """Whether the program misses its own mark."""
    return not plan.passes(course.metric)


@dataclass(frozen=True, slots=True)
class Fault:
    """A mutation operator.

    Attributes:
        name: Unique among the faults.
        cause: The root cause that it injects, from the public vocabulary.
        strengths: From subtle to gross.
        change: Puts the fault into a plan.
        also: Other causes that an expert would accept, each with the reason.
        shows: Whether a run has suffered; a mutant that has not is left out of a score.
    """

    name: str
    cause: str
    strengths: tuple[Strength, ...]
    change: Change
    also: Mapping[str, str] = field(default_factory=dict)
    shows: Shows = fails

    def into(self, plan: Plan, strength: Strength) -> Plan | None:
        """The plan with this fault in it, or None where it does not apply."""
        return self.change(plan, strength)

    def accepts(self, cause: str) -> bool:
        """Whether a diagnosis that names this cause is right."""
        return cause == self.cause or cause in self.also


FAULTS: dict[str, Fault] = {}


def fault(
    cause: str,
    *strengths: Strength,
    also: Mapping[str, str] | None = None,
    shows: Shows = fails,
) -> Callable[[Change], Change]:
    """Register a function as a fault.

    Args:
        cause: The root cause that it injects.
        strengths: From subtle to gross; none if there is only one way.
        also: Other causes that an expert would accept, each with the reason.
        shows: Whether a run has suffered.
    """

    def register(change: Change) -> Change:
        name = change.__name__.strip("_")
        if name in FAULTS:
            msg = f"there are two faults named {name!r}"
            raise ValueError(msg)
        FAULTS[name] = Fault(name, cause, strengths or ("plain",), change, also or {}, shows)
        return change

    return register


@functools.cache
def all_faults() -> dict[str, Fault]:
    """Every fault by name; imports the families on first use."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return FAULTS
