"""Healthy training programs of different kinds, one a file.

A program is a `Plan` made by a function that the decorator `program` registers. Adding a
file to this package adds its program.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable

from neuraldbg.testing.plan import Plan

PROGRAMS: dict[str, Plan] = {}


def program(make: Callable[[], Plan]) -> Callable[[], Plan]:
    """Register the plan that a function makes."""
    plan = make()
    PROGRAMS[plan.name] = plan
    return make


@functools.cache
def all_programs() -> dict[str, Plan]:
    """Every program by name; imports the files on first use."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return PROGRAMS
