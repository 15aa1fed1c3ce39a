"""When to look: dense at the start, then as often as the budget pays for.

The governor is a purse. It starts with an allowance, so that the first steps, where most
faults show, are seen densely; it earns `budget` times the run's own time, and each look
costs what it was measured to cost. A look happens when the purse pays for it, so over a
long run the cost cannot exceed the budget plus the allowance.
"""

from __future__ import annotations

from typing import Final

# Our seconds that may be spent before the budget counts. At 2 % it is the budget of the
# first 100 s: invisible in a run that matters, ample for one that fails at once.
ALLOWANCE: Final = 2.0
# The part of the allowance that is kept for triggers (a suspicious loss) after warm-up.
RESERVE: Final = 0.5
# Steps of dense looking at most; then the purse is spent evenly instead.
WARM_UP: Final = 512
# A trigger buys this many dense looks.
BURST: Final = 8
# After warm-up never more often than this, so that the median step is an unwatched one.
LEAST_PERIOD: Final = 4
# Weight of the newest look in the running estimate of a look's cost.
BLEND: Final = 0.2


class Schedule:
    """Decides which steps are due.

    Args:
        budget: Share of the run's time that watching may take; 0 looks only in the
            allowance, `inf` at every step.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.purse = ALLOWANCE
        self.cost = 0.0
        self.last = -1
        self.burst = 0
        self.looks = 0

    def due(self, step: int) -> bool:
        """Whether to look in this step."""
        if self.budget == float("inf") or step == 0:
            return True
        if self.burst > 0:
            return self.purse > self.cost
        if step < WARM_UP and self.purse - self.cost > RESERVE:
            return True
        spaced = step - self.last >= LEAST_PERIOD
        return spaced and self.purse > max(self.cost, RESERVE)

    def looked(self, step: int, seconds: float) -> None:
        """Account for a look that cost `seconds`."""
        self.cost = seconds if self.looks == 0 else self.cost + BLEND * (seconds - self.cost)
        self.purse -= seconds
        self.last = step
        self.looks += 1
        self.burst = max(self.burst - 1, 0)

    def earned(self, seconds: float) -> None:
        """Account for `seconds` of the run's own time."""
        self.purse = min(self.purse + self.budget * seconds, ALLOWANCE)

    def trigger(self) -> None:
        """Something looks suspicious: look densely for a while."""
        self.burst = BURST
