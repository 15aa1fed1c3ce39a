"""Writing a run file while the training goes on, from a thread of its own.

Calls only copy and queue; the thread commits at least twice a second. A process that is
killed loses at most the last second, and the file it leaves reads like any other. Nothing
that goes wrong here reaches the training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import (
    Channel,
    Gap,
    LossFact,
    ModuleFact,
    OptimizerFact,
    Overhead,
    ParamFact,
    RunFact,
)
from neuraldbg.core.metrics import LOOK, STEP
from neuraldbg.errors import UsageError
from neuraldbg.store.frames import Frame, Mask, Numbers
from neuraldbg.store.inbox import DIAGNOSIS, Inbox
from neuraldbg.store.places import Places
from neuraldbg.store.scribe import Detect, Scribe

MAX_BYTES: Final = 100 * 1000 * 1000  # a million steps of ten numbers, or 2,000 wide looks

# What may wait in memory: little beside a model, and little beside the size limit, since it
# may all arrive while the file is being thinned.
_QUEUE_BYTES: Final = 32 * 1000 * 1000
_QUEUE_SHARE: Final = 8


class RunWriter:
    """Writes the run file of one run.

    Every method but `flush` and `close` returns at once. All do nothing in a forked child,
    after `close()` and after a failure, and may be called from a signal handler.

    Args:
        path: The file; an older run file there is replaced.
        run: What is known of the run at its start.
        max_bytes: The size limit. Old readings are thinned to stay under it.
        on_error: Called once, from the writer's thread, with the failure that ended writing.
        before_thin: Called from the writer's thread with everything so far when readings
            are about to be thinned; the events it returns are stored and never thinned.

    Attributes:
        path: The file.

    Raises:
        RunFileError: The file cannot be made there; the message says why.
    """

    def __init__(
        self,
        path: Path,
        run: RunFact,
        *,
        max_bytes: int = MAX_BYTES,
        on_error: Callable[[Exception], None] | None = None,
        before_thin: Detect | None = None,
    ) -> None:
        self.path = Path(path)
        self._pid = os.getpid()
        self._places = {STEP: Places(), LOOK: Places()}
        self._inbox = Inbox(min(_QUEUE_BYTES, max_bytes // _QUEUE_SHARE))
        self._scribe = Scribe(self.path, self._inbox, max_bytes, on_error, before_thin)
        self._scribe.start(run)

    @property
    def error(self) -> Exception | None:
        """The failure that ended writing, or None."""
        return self._scribe.error

    def channels(self, stream: str, channels: Sequence[Channel]) -> list[int]:
        """Append channels to a stream; known ones keep their place.

        Args:
            stream: `core.metrics.STEP` or `LOOK`.
            channels: In any order, each as often as you like.

        Returns:
            The position of each in the frames of the stream.

        Raises:
            UsageError: There is no such stream.
        """
        known = self._places_of(stream)
        places, fresh = [], []
        for channel in channels:
            place = known.find(channel)
            if place is None:
                place = known.add(channel)
                fresh.append((stream, place, channel))
            places.append(place)
        if fresh and not self._inert:
            self._inbox.put_channels(fresh)
        return places

    def frame(self, stream: str, step: int, values: Numbers, present: Mask | None = None) -> None:
        """Store the numbers of a step; a second frame of the same step adds to the first.

        Args:
            stream: `core.metrics.STEP` or `LOOK`.
            step: The step.
            values: One number per channel, in order of position; may stop early. Copied.
            present: Which of them were measured; None for all. Copied.

        Raises:
            UsageError: No such stream, more values than channels, or a mask of another shape.
        """
        if self._inert:
            return
        width = len(self._places_of(stream))
        if values.ndim != 1 or len(values) > width:
            message = f"frame {stream}/{step}: values of shape {values.shape}, {width} channels"
            raise UsageError(message)
        if present is not None and present.shape != values.shape:
            message = f"frame {stream}/{step}: {present.shape} mask of {values.shape} values"
            raise UsageError(message)
        mask = None if present is None else np.array(present, np.bool_)
        self._inbox.put_frame(Frame(stream, int(step), np.array(values), mask))

    def run(self, fact: RunFact) -> None:
        """Replace the facts of the run."""
        self._fact("run", fact)

    def modules(self, facts: Sequence[ModuleFact]) -> None:
        """Replace the facts of the modules."""
        self._fact("modules", tuple(facts))

    def params(self, facts: Sequence[ParamFact]) -> None:
        """Replace the facts of the parameters."""
        self._fact("params", tuple(facts))

    def optimizers(self, facts: Sequence[OptimizerFact]) -> None:
        """Replace the facts of the optimizers."""
        self._fact("optimizers", tuple(facts))

    def losses(self, facts: Sequence[LossFact]) -> None:
        """Replace the facts of the losses."""
        self._fact("losses", tuple(facts))

    def overhead(self, fact: Overhead) -> None:
        """Replace what watching has cost so far."""
        self._fact("overhead", fact)

    def diagnosis(self, json_text: str) -> None:
        """Replace the diagnosis, a JSON object."""
        self._fact(DIAGNOSIS, json_text)

    def event(self, event: SemanticEvent) -> None:
        """Store an event; an earlier one of the same id is replaced."""
        if not self._inert:
            self._inbox.put_event(event)

    def gap(self, gap: Gap) -> None:
        """Note something that could not be observed; a repetition is ignored."""
        if not self._inert:
            self._inbox.put_gap(gap)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything queued so far is in the file.

        Returns:
            Whether it is; False after a failure, after `timeout` seconds, in a forked child
            and in a callback of this writer (which would wait for itself).
        """
        return self._may_wait and self._inbox.flush(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Store what is queued and end, leaving a single file. Idempotent.

        Args:
            timeout: Seconds to wait for it; the thread then goes on by itself.
        """
        if os.getpid() == self._pid:
            self._inbox.close()
        if self._may_wait:
            self._scribe.join(timeout)

    def __repr__(self) -> str:
        state = "failed" if self.error else "closed" if self._inbox.closed else "open"
        return f"RunWriter({str(self.path)!r}, {state})"

    @property
    def _inert(self) -> bool:
        # The process first: in a child, the locks of the rest may be held for ever.
        return os.getpid() != self._pid or self._inbox.closed or self.error is not None

    @property
    def _may_wait(self) -> bool:
        return os.getpid() == self._pid and not self._scribe.is_current

    def _places_of(self, stream: str) -> Places:
        try:
            return self._places[stream]
        except KeyError:
            message = f"There is no stream {stream!r}; the streams are {', '.join(self._places)}."
            raise UsageError(message) from None

    def _fact(self, key: str, value: object) -> None:
        if not self._inert:
            self._inbox.put_fact(key, value)
