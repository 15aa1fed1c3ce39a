"""When to look: dense at the start, then as often as the budget pays for.

The governor is a purse. It starts with an allowance, so that the first steps, where most
faults show, are seen densely; it earns `budget` times the run's own time, and each look
costs what it was measured to cost, and what it slows the step by. A look happens when the
purse pays for it, so over a long run the cost cannot exceed the budget plus the allowance,
what the first look takes once (`FIRST_LOOK`), what looks slow their steps by before the first
step without one, and what a few later trainings of the same run are given (`anew`).
"""

from __future__ import annotations

import math
from typing import Final

# Our seconds that may be spent before the budget counts. At 2 % it is the budget of the
# first 100 s: invisible in a run that matters, ample for one that fails at once.
ALLOWANCE: Final = 2.0
# The part of the allowance that is kept for triggers (a suspicious loss) after warm-up.
RESERVE: Final = 0.5
# Seconds that the first look counts for, at most. What it takes beyond that is paid once, for
# imports and for finding the models (0.13 s a search, measured), and is no look's price.
FIRST_LOOK: Final = 0.25
# Steps of dense looking at most; then the purse is spent evenly instead.
WARM_UP: Final = 512
# A trigger buys this many dense looks.
BURST: Final = 8
# After warm-up never more often than this, so that the median step is an unwatched one.
LEAST_PERIOD: Final = 4
# Trainings that begin later in a run (a student after its teacher, a second phase) and get the
# reserve again if it is spent: a script that makes an optimizer in each epoch stays within it.
LATER_TRAININGS: Final = 4
# Following the loss costs the same in every step. It is paid from at most this part of what
# a step earns: where steps are so short that it would take all, looks still get the rest.
FOLLOWING: Final = 0.5
# Seconds that following may cost beyond that before steps are let pass: a short run is
# followed from its first step to its last.
FOLLOWING_ALLOWANCE: Final = 1.0
# Steps let pass at a stretch, at most: a loss that breaks is not met much later.
LONGEST_REST: Final = 64
# Weight of the newest look or step in the running estimate of what one takes.
BLEND: Final = 0.2
# A step that takes more than this many usual ones was a pause (a notebook at rest, another
# process's turn): it earns no more, or a burst of looks would greet the user's return.
PAUSE: Final = 4.0


class Schedule:
    """Decides which steps are due. The first one always is.

    Args:
        budget: Share of the run's time that watching may take; 0 looks only in the
            allowance, `inf` at every step.

    Attributes:
        looks: Looks so far.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.looks = 0
        self._purse = ALLOWANCE
        self._cost = 0.0
        self._usual: float | None = None
        self._plain: float | None = None  # what a step takes that is not looked at
        self._slower = 0.0
        self._following = FOLLOWING_ALLOWANCE
        self._steps = 1
        self._since = 0
        self._burst = 0
        self._later = 0

    def next_step(self) -> bool:
        """Begin the next step; returns whether to look in it."""
        self._steps += 1
        self._since += 1
        if self.budget == float("inf"):
            return True
        if self._burst > 0:
            return self._purse > self._cost
        if self._steps <= WARM_UP and self._purse - self._cost > RESERVE:
            return True
        return self._since >= LEAST_PERIOD and self._purse > max(self._cost, RESERVE)

    def looked(self, seconds: float, theirs: float = 0.0) -> None:
        """Account for a look.

        Args:
            seconds: What it cost us.
            theirs: Seconds of the run's own time in that step. A compiled step with boundaries
                in it is slower by what could not be fused, three times on a small convolutional
                net (docs/measured.md); that is our doing, too.
        """
        if self.looks == 0:
            seconds = self._cost = min(seconds, FIRST_LOOK)
        elif self._plain is not None:
            more = min(theirs, PAUSE * self._plain) - self._plain
            # Averaged before it is charged: of single steps, noise would be charged as well.
            self._slower += BLEND * (more - self._slower)
            seconds += max(self._slower, 0.0)
        self._cost += BLEND * (seconds - self._cost)
        self._purse -= seconds
        self._since = 0
        self.looks += 1
        self._burst = max(self._burst - 1, 0)

    def passed(self, theirs: float, ours: float = 0.0) -> None:
        """Account for a step.

        Args:
            theirs: Seconds of the run's own time.
            ours: Seconds that following the step cost us, apart from a look.
        """
        usual = theirs if self._usual is None else self._usual
        counted = min(theirs, PAUSE * usual)
        self._usual = usual + BLEND * (counted - usual)
        if self._since:
            plain = counted if self._plain is None else self._plain
            self._plain = plain + BLEND * (counted - plain)
        self._earn(counted, ours)

    def rested(self, theirs: float, steps: int) -> None:
        """Account for steps that were let pass.

        Args:
            theirs: Seconds that they took together.
            steps: How many they were.
        """
        self._earn(min(theirs, PAUSE * (self._usual or 0.0) * steps), 0.0)

    def _earn(self, theirs: float, ours: float) -> None:
        earned = self.budget * theirs if theirs > 0 else 0.0
        share = FOLLOWING * earned
        self._purse = min(self._purse + earned - min(ours, share), ALLOWANCE)
        self._following = min(self._following + share - ours, FOLLOWING_ALLOWANCE)

    def rest(self) -> int:
        """How many steps to let pass until following the next one is paid for."""
        if self._following >= 0 or self._burst > 0:
            return 0
        earned = FOLLOWING * self.budget * max(self._usual or 0.0, 0.0)
        owed = -self._following
        return LONGEST_REST if owed >= LONGEST_REST * earned else math.ceil(owed / earned)

    def anew(self) -> bool:
        """Another training begins in the same run: look densely, as at the run's start.

        Returns:
            Whether it is one of the first, for which that is done.
        """
        if self._later >= LATER_TRAININGS:
            return False
        self._later += 1
        self._purse = max(self._purse, RESERVE)
        self.trigger()
        return True

    def trigger(self) -> None:
        """Something looks suspicious: look densely for a while."""
        self._burst = BURST
