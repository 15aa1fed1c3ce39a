"""What can be changed from outside: one declaration for each intervention.

Adding a file to this package adds its declarations; the part that acts has the same name
in `neuraldbg.torch.interventions`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervention:
    """One change of a training run, made without touching the user's files.

    Attributes:
        name: Its id, e.g. `lr_x0.1`.
        changes: What is changed, as a phrase that follows "with".
        causes: Ids of the causes that it tests: without the failure, they held.
        unless: When it cannot be applied.
        side_effects: What it changes besides, so that a result can be doubted.
        size: How much of the training it touches; of several cures the smallest is named.
        eager: Whether the trial must run without `torch.compile`, because the change is
            made between single operations.
        evaluates: Whether the script's own evaluation shows the effect, and not its training.
        rescales: Whether the loss is in other units under it, so that a run without a known
            chance level cannot be seen to have gained nothing.
    """

    name: str
    changes: str
    causes: tuple[str, ...]
    unless: str
    side_effects: str
    size: int
    eager: bool = False
    evaluates: bool = False
    rescales: bool = False


INTERVENTIONS: dict[str, Intervention] = {}

# How much of a training is touched.
SETTING, LOOP, DATA, MODEL, PRECISION = 1, 2, 3, 4, 5


def intervention(
    name: str,
    changes: str,
    *,
    causes: str,
    unless: str,
    side_effects: str,
    size: int,
    eager: bool = False,
    evaluates: bool = False,
    rescales: bool = False,
) -> None:
    """Declare an intervention; `causes` are ids separated by spaces."""
    INTERVENTIONS[name] = Intervention(
        name, changes, tuple(causes.split()), unless, side_effects, size, eager, evaluates, rescales
    )


def all_interventions() -> dict[str, Intervention]:
    """Every declared intervention by name; imports the families on first use."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return INTERVENTIONS


def interventions_for(cause: str) -> list[Intervention]:
    """The interventions that test a cause, the smallest change first."""
    found = [i for i in all_interventions().values() if cause in i.causes]
    return sorted(found, key=lambda i: i.size)
