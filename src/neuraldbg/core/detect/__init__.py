"""The Semantic Event Extractor: series of numbers in, changes of meaning out.

Each file declares one detector with `@detector`; adding a file adds the detector. Other
packages add theirs through the entry point group `neuraldbg.detectors`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable

import numpy as np

from neuraldbg.core import plugins
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.record import Record

Detector = Callable[[Record], Iterable[SemanticEvent]]
Failed = Callable[[str, Exception], None]
DETECTORS: dict[str, Detector] = {}


def detector(fn: Detector) -> Detector:
    """Register a detector under its module's name."""
    DETECTORS[fn.__module__.rpartition(".")[2]] = fn
    return fn


@np.errstate(all="ignore")
def extract(record: Record, failed: Failed | None = None) -> tuple[SemanticEvent, ...]:
    """Every semantic event of a record, in order of step.

    Args:
        record: What was observed.
        failed: Told the name and error of a detector that raised; the others go on. Without
            it the error is raised.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    plugins.load(plugins.DETECTORS)
    found: list[SemanticEvent] = []
    for name in sorted(DETECTORS):
        try:
            found += DETECTORS[name](record)
        except Exception as error:  # one detector's bug must not silence the others
            if failed is None:
                raise
            failed(name, error)
    return tuple(sorted(found, key=lambda e: (e.step, e.where, e.id)))
