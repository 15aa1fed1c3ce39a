"""A compiled run beside the same run in eager mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.parting import Comparison, compare
from neuraldbg.errors import RunFileError
from neuraldbg.torch.streams import Stream

if TYPE_CHECKING:
    from neuraldbg.store.writer import RunWriter
    from neuraldbg.torch.guard import Faults

WHAT: Final = "the comparison with eager mode"


def draw_as_eager() -> None:
    """Have code compiled by Inductor draw the random numbers that eager mode draws.

    Its own generator is faster but another one: each dropout mask would differ.
    """
    from torch._inductor import config

    config.fallback_random = True


def note_distances(writer: RunWriter, eager: Path, faults: Faults) -> None:
    """Write how far each module is from the eager run, or why that cannot be told.

    Args:
        writer: The run file of the compiled run, complete.
        eager: The run file of the eager run.
        faults: Is told why there is no comparison.
    """
    from neuraldbg.store.reader import load_record

    writer.flush()
    try:
        mine, theirs = load_record(writer.path), load_record(eager)
    except RunFileError as error:
        faults.gap(WHAT, f"the eager run left nothing to compare with: {error}")
        return
    if not mine.facts.run.compiled:
        faults.gap(WHAT, "nothing in this run was compiled")
        return
    found = compare(mine, theirs)
    if found.obstacle:
        faults.gap(WHAT, found.obstacle)
    elif found.first is not None and found.first.side == "batch":
        where = f"the two runs get other data from step {found.first.step} on"
        faults.gap(WHAT, f"{where} ({found.first.where}): seed the script")
    else:
        _write(writer, found)


def _write(writer: RunWriter, found: Comparison) -> None:
    stream = Stream(writer, m.LOOK)
    for step in found.steps:
        for name, gaps in found.largest.items():
            if step in gaps:
                stream.put(Channel(Kind.MODULE, name, m.COMPILED_GAP), gaps[step])
        stream.emit(step)
