"""Causes and detectors of other packages, found through their entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

CAUSES: Final = "neuraldbg.causes"
DETECTORS: Final = "neuraldbg.detectors"

# What could not be loaded, by name: one faulty package costs its own knowledge only.
FAULTY: dict[str, Exception] = {}
_LOADED: set[str] = set()


def load(group: str) -> None:
    """Import every entry point of a group once; importing registers what it declares.

    Args:
        group: `neuraldbg.causes` or `neuraldbg.detectors`.
    """
    if group in _LOADED:
        return
    _LOADED.add(group)
    for entry in entry_points(group=group):
        try:
            entry.load()
        except Exception as error:  # another package's fault is named, not passed on
            FAULTY[f"{entry.name} ({entry.value})"] = error
