"""Which versions of PyTorch this version was run with, and what is said of any other."""

from __future__ import annotations

import contextlib
import warnings
from typing import Final

import torch

from neuraldbg.errors import ObservationWarning
from neuraldbg.torch.guard import Faults

# The versions whose tests were run before a release: `docs/reliability.md` says by which command.
TESTED: Final = ("2.13",)

_warned: set[str] = set()


def is_tested() -> bool:
    """Whether the installed version is one of those."""
    return ".".join(str(torch.__version__).split(".")[:2]) in TESTED


def note_untested(faults: Faults) -> None:
    """On an untested version, note a gap and warn, once in a process; observing goes on.

    What does not work there is found by looking, not by the number: a boundary that cannot
    be tapped becomes a gap of its own.
    """
    if is_tested():
        return
    version = str(torch.__version__)
    why = f"this is torch {version}; NeuralDBG was tested with {', '.join(TESTED)}"
    faults.gap("the version of torch", why)
    if version in _warned:
        return
    _warned.add(version)
    text = f"{why[0].upper()}{why[1:]}. It goes on, and the report lists what it could not observe."
    with contextlib.suppress(ObservationWarning):  # where warnings are errors
        warnings.warn(text, ObservationWarning, stacklevel=3)
