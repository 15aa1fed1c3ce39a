"""What an exception of the script says about the cause: torch names some faults itself."""

from __future__ import annotations

from typing import Final

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.view import View

# Torch checks these conditions itself and raises: a direct sight of the fault.
CERTAIN: Final = 8.0


def raised(view: View, words: str, meaning: str) -> Evidence | None:
    """The exception that ended the run as evidence, if its text has these words.

    Args:
        view: The run.
        words: Part of torch's message.
        meaning: What it says about the user's code.
    """
    text = str(view.note(m.N_EXCEPTION) or "")
    if words not in text:
        return None
    return Evidence(f"{meaning} ({text[:120]})", CERTAIN, step=view.facts.run.steps)
