"""Judgement: what paired trials say about a cause, and how far it moves the belief in it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from neuraldbg.core.engine import FAILED as FAILING
from neuraldbg.core.learning import LITTLE
from neuraldbg.experiments.interventions import Intervention
from neuraldbg.experiments.outcome import Outcome

# Share of what was left to learn that must be learnt more, to call a failure gone, and
# below which nothing happened. Between seeds of sound runs of the benchmark this share
# varies by a few hundredths.
CURED: Final = 0.25
NOTHING: Final = 0.10
# A breakdown that turns into a run which learns at least this much of its loss is gone.
LEARNS: Final = 0.05
# Of a part that got no gradient, so much may be left without one for other reasons.
STILL_DEAF: Final = 0.25
ALIKE: Final = 0.1  # first losses that differ by less are on one scale
# Log-likelihood ratios, from the 72 outcomes of `bench/verify.py` on 36 failing scripts with
# Laplace's rule: of 32 tests of the true cause 30 confirmed and none refuted it, of 40 tests of
# another one 10 confirmed (a lower rate tames many faults) and 25 refuted it: 1.24 and -3.05.
CONFIRMS: Final = 1.25
REFUTES: Final = -3.0
# A rival that cannot be tested, when removing the tested cause removed the whole failure.
OVERSHADOWED: Final = -1.0

# Two-sided 95 % quantiles of Student's t for 1 to 9 degrees of freedom.
T95: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two trials of one seed: unchanged, and with the intervention."""

    unchanged: Outcome
    changed: Outcome
    evaluates: bool = False
    rescales: bool = False

    @property
    def effect(self) -> float:
        """The change, as a share of what was left to learn: -inf..1.

        What is left is measured against the chance level (or the first loss) and, where
        both runs start from the same loss, also against 0; the larger share counts. A loss
        that the fault itself blows up at once starts higher, but in the same units.
        """
        before, after = self.unchanged, self.changed
        if self.evaluates:
            return _less(before.evaluation, after.evaluation)
        left = max(1.0 - before.learnt, 0.05)
        share = (after.learnt - before.learnt) / left
        alike = math.isclose(before.first, after.first, rel_tol=ALIKE)
        alike |= before.first > after.first and not self.rescales
        whole = not before.broke and not after.broke
        return max(share, _less(before.last, after.last)) if alike and whole else share

    @property
    def verdict(self) -> str:
        """`gone`, `stayed` or `unclear`: what became of the failure.

        Where the unchanged run learnt nearly everything, its training loss does not show the
        failure (evaluation may), and so cannot show that it stayed; nor can the first loss where
        the change moved that of another optimizer, which may be the one that fails.
        """
        before, after = self.unchanged, self.changed
        if after.kind == "crashed" and before.kind != "crashed":
            return "unclear"  # the change may not fit the script
        if before.broke and not self.evaluates:
            if after.broke:
                return "stayed"
            learns = _never_began(before) or (after.learnt >= LEARNS and after.level < 1.0)
            return "gone" if learns else "unclear"
        if after.broke:
            return "stayed"
        if before.deaf and before.level == 0.0 and not self.evaluates:
            return self._heard
        if math.isnan(self.effect):
            return "unclear"
        sound = before.level >= FAILING and after.level == 0.0 and self.effect >= LITTLE
        if sound or (self.effect >= CURED and after.level <= before.level):
            return "unclear" if self._worse else "gone"
        shows = before.level > 0.0 or before.learnt <= 1.0 - NOTHING
        told = self.evaluates or (shows and not self._moves_others)
        return "stayed" if self.effect < NOTHING and told and not self.rescales else "unclear"

    @property
    def _heard(self) -> str:
        """The verdict where a part gets no gradient, which the loss of the whole does not show."""
        if self.changed.deaf <= STILL_DEAF * self.unchanged.deaf:
            return "unclear" if self._worse else "gone"
        return "stayed" if self.changed.deaf >= self.unchanged.deaf else "unclear"

    @property
    def _worse(self) -> bool:
        """Whether the loss ends above all that it was unchanged.

        However much such a run learns of its own first loss, that is no cure.
        """
        before, after = self.unchanged, self.changed
        if self.evaluates or self.rescales or not min(before.first, before.last) > 0:
            return False
        return after.last > (1 + ALIKE) * max(before.first, before.last)

    @property
    def _moves_others(self) -> bool:
        before, after = self.unchanged.others, self.changed.others
        # Written so that a loss that is not finite counts as moved.
        still = [abs(_less(b, a)) < NOTHING for b, a in zip(before, after, strict=False)]
        return len(before) != len(after) or not all(still)


@dataclass(slots=True)
class Trials:
    """Everything tried with one intervention.

    Attributes:
        intervention: What was changed.
        pairs: One for each seed.
        trouble: Why it says nothing, if it does not.
        idle: Whether it says nothing because there was nothing to change.
        applied: How often it changed something.
    """

    intervention: Intervention
    pairs: list[Pair] = field(default_factory=list)
    trouble: str = ""
    applied: int = 0
    idle: bool = False

    @property
    def result(self) -> str:
        """`confirmed`, `refuted` or `inconclusive`."""
        verdicts = [p.verdict for p in self.pairs]
        if self.trouble or not verdicts:
            return "inconclusive"
        for verdict, result in (("gone", "confirmed"), ("stayed", "refuted")):
            if verdicts.count(verdict) * 2 > len(verdicts):
                return result
        return "inconclusive"

    @property
    def effect(self) -> float:
        """Mean effect over the seeds; 0 if there is none."""
        return statistics.fmean(p.effect for p in self.pairs) if self.pairs else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the effect over seeds (Student's t).

        None for one seed, and where a seed has no effect to speak of: no evaluation loss, or
        one that is not finite.
        """
        effects = [p.effect for p in self.pairs]
        if len(effects) < 2 or not all(map(math.isfinite, effects)):
            return None
        half = T95[min(len(effects) - 2, 8)] * statistics.stdev(effects) / math.sqrt(len(effects))
        return self.effect - half, self.effect + half


def _never_began(outcome: Outcome) -> bool:
    """Whether the script ended before its second step: no rate can only have put that off."""
    return outcome.kind == "crashed" and (outcome.onset or 0) <= 0


def _less(before: float | None, after: float | None) -> float:
    """By what share a loss is lower; NaN if that has no meaning."""
    if before is None or after is None or before <= 0:
        return math.nan
    return (before - after) / before


def best(tried: Sequence[Trials]) -> Trials | None:
    """The intervention that decides about a cause.

    A cause is confirmed by any that cures, and refuted only if every one that could be
    applied was tried and none changed anything.
    """
    order = {"confirmed": 0, "inconclusive": 1, "refuted": 2}
    ranked = sorted(tried, key=lambda t: (order[t.result], -t.effect))
    spoke = [t for t in ranked if t.pairs or not t.idle]
    return spoke[0] if spoke else next(iter(ranked), None)


def shift(trials: Trials, strongest: float) -> float:
    """What a result adds to the log-odds of its cause.

    Args:
        trials: The best of the cause's interventions.
        strongest: The largest effect of any confirmed intervention in this run; a cure
            that falls short of it counts less.
    """
    if trials.result == "refuted":
        return REFUTES
    if trials.result != "confirmed":
        return 0.0
    return CONFIRMS * min(max(trials.effect, LEARNS) / max(strongest, LEARNS), 1.0)


def updated(confidence: float, by: float) -> float:
    """A probability whose log-odds move."""
    p = min(max(confidence, 1e-4), 1.0 - 1e-4)
    return 1.0 / (1.0 + math.exp(-(math.log(p / (1.0 - p)) + by)))


def sentence(trials: Trials) -> str:
    """The result in plain words, with its numbers."""
    if not trials.pairs:
        return f"with {trials.intervention.changes}: {trials.trouble or 'not run'}"
    n = len(trials.pairs)
    gone = sum(p.verdict == "gone" for p in trials.pairs)
    pair = sorted(trials.pairs, key=lambda p: p.effect)[n // 2]
    seeds = "1 seed" if n == 1 else f"{n} seeds"
    told = f"the failure was gone in {gone} of {seeds}"
    if trials.trouble:
        told = f"this says nothing: {trials.trouble}"
    elif trials.result == "inconclusive" and not gone:
        told = "too little to tell"
    changed, unchanged = (_went(o) + _unheard(o) for o in (pair.changed, pair.unchanged))
    gained = _gained(trials)
    return f"with {trials.intervention.changes}, {changed} ({told}); unchanged, {unchanged}{gained}"


def _gained(trials: Trials) -> str:
    """The effect with its interval over seeds; empty for one seed."""
    interval = trials.interval
    if interval is None:
        return ""
    of = "the evaluation loss" if trials.intervention.evaluates else "what was left to learn"
    low, high = interval[0], min(interval[1], 1.0)  # nobody can gain more than everything
    between = f"{_percent(low)} to {_percent(high)}"
    return f"; gained: {_percent(trials.effect)} of {of} (95 % interval over seeds {between})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _went(outcome: Outcome) -> str:
    first, last = f"{outcome.first:.3g}", f"{outcome.last:.3g}"
    if outcome.kind == "crashed":
        return f"the script ended at step {outcome.onset} with {outcome.exception or 'an error'}"
    if outcome.kind == "nonfinite":
        return f"the loss was not finite from step {outcome.onset} on"
    if outcome.first == outcome.last or not math.isfinite(outcome.first):
        return f"the loss stayed at {last}"
    return f"the loss went from {first} to {last}"


def _unheard(outcome: Outcome) -> str:
    return f", and {outcome.deaf} weights never got a gradient" if outcome.deaf else ""


def as_dict(trials: Trials, *, reproduced: bool, rivals: Sequence[str] = ()) -> dict[str, Any]:
    """The result as it stands in the diagnosis (key `experiment`)."""
    pair = trials.pairs[0] if trials.pairs else None
    return {
        "intervention": trials.intervention.name,
        "changes": trials.intervention.changes,
        "reproduced": reproduced,
        "result": trials.result if reproduced else "inconclusive",
        "replicates": len(trials.pairs),
        "effect": {
            "learnt_more": trials.effect,
            "interval": None if trials.interval is None else list(trials.interval),
            "loss_unchanged": None if pair is None else [p.unchanged.last for p in trials.pairs],
            "loss_changed": None if pair is None else [p.changed.last for p in trials.pairs],
        },
        "necessary": reproduced and trials.result == "confirmed",
        "text": sentence(trials),
        "side_effects": trials.intervention.side_effects,
        "also_cured_by": list(rivals),
    }
