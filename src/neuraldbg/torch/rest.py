"""Steps that are let pass, where following each would cost more than the budget pays for.

Following a step (its loss, its rates, its time) costs the same however short the step is.
Where a step takes a millisecond, that alone would be many times the budget; then a step is
followed once in a while, and those between are only counted.
"""

from __future__ import annotations


class Rest:
    """Counts steps that are let pass.

    Attributes:
        left: Steps still to let pass; 0 while every step is followed.
        passed: Steps let pass since the rest began.
        backwards: Backward passes that each of them is taken to have made.
    """

    def __init__(self) -> None:
        self.left = 0
        self.passed = 0
        self.backwards = 0

    def begin(self, steps: int, backwards: int) -> None:
        """Let this many steps pass, each taken to be like the one before."""
        self.left, self.passed, self.backwards = steps, 0, backwards

    def count(self) -> bool:
        """One more step is over; whether it was the last of the rest."""
        self.left -= 1
        self.passed += 1
        return self.left <= 0
