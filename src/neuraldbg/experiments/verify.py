"""The experiment as a whole: reproduce, intervene, replicate, judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

from neuraldbg.core.record import Record
from neuraldbg.core.trainings import that_began
from neuraldbg.experiments import judge
from neuraldbg.experiments.interventions import Intervention
from neuraldbg.experiments.judge import Pair, Trials
from neuraldbg.experiments.outcome import Outcome, Scope, of
from neuraldbg.experiments.plan import Test, context
from neuraldbg.experiments.runner import Result

NEAR: Final = 0.15  # two runs of one script and seed learn alike within this share
ENOUGH: Final = 0.8  # share of the window that a trial must cover to say something
SEEDS: Final = 3

_NO_TIME: Final = "the budget ended before it was tried"

Say = Callable[[str], None]


class Laboratory(Protocol):
    """Where trials are run."""

    @property
    def affords(self) -> bool:
        """Whether the budget allows another trial."""

    def trial(
        self, intervention: Intervention | None, seed: int, context: dict[str, Any] | None = None
    ) -> Result:
        """Run one trial."""


@dataclass(slots=True)
class Findings:
    """What an experiment brought to light, complete or interrupted.

    Attributes:
        reproduced: Whether the unchanged run failed again.
        differed: What differed, if it did not.
        tests: The hypotheses, with everything tried for each.
        untested: Causes for which the budget did not suffice.
        interrupted: Whether the user ended it.
    """

    reproduced: bool = False
    differed: str = ""
    tests: list[tuple[Test, list[Trials]]] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    interrupted: bool = False

    def as_data(self) -> dict[str, Any]:
        """The results as they are stored with the run."""
        best = {t.cause: judge.best(tried) for t, tried in self.tests}
        cures = [b for b in best.values() if b is not None and b.result == "confirmed"]
        strongest = max((b.effect for b in cures), default=0.0)
        cures.sort(key=lambda b: (b.intervention.size, -b.effect))
        found = []
        for cause, trials in best.items():
            if trials is None:
                continue
            others = [c.intervention.changes for c in cures if c is not trials]
            rivals = others if trials in cures else []
            told = judge.as_dict(trials, reproduced=self.reproduced, rivals=rivals)
            by = judge.shift(trials, strongest) if self.reproduced else 0.0
            found.append({"cause": cause, "shift": by, "experiment": told})
        return {
            "reproduced": self.reproduced,
            "differed": self.differed,
            "interrupted": self.interrupted,
            "untested": self.untested,
            "smallest": cures[0].intervention.changes if len(cures) > 1 else None,
            "tests": found,
        }


class Experiment:
    """Tests hypotheses of one recorded run.

    Args:
        record: The run.
        tests: What to test, the likeliest first.
        laboratory: Where trials are run.
        scope: What is judged of the run and of its trials.
        say: Told in a line what is running and what is left.
    """

    def __init__(
        self, record: Record, tests: Sequence[Test], laboratory: Laboratory, scope: Scope, say: Say
    ) -> None:
        self._record = record
        self._tests = list(tests)
        self._laboratory = laboratory
        self._scope = scope
        self._say = say
        self._unchanged: dict[int, Result] = {}
        self.findings = Findings()

    def run(self, seeds: int = SEEDS) -> Findings:
        """Run everything that the budget allows; an interruption leaves what is done."""
        try:
            if self._reproduces():
                self._first_round()
                for seed in range(1, seeds):
                    self._replicate(seed)
        except KeyboardInterrupt:
            self.findings.interrupted = True
        return self.findings

    def _reproduces(self) -> bool:
        self._say("running it unchanged: does the failure come back?")
        result = self._base(0)
        original = of(self._record, self._scope)
        self.findings.reproduced = result.outcome is not None and same(original, result.outcome)
        if not self.findings.reproduced:
            self.findings.differed = differences(self._record, original, result)
        return self.findings.reproduced

    def _base(self, seed: int) -> Result:
        if seed not in self._unchanged:
            self._unchanged[seed] = self._laboratory.trial(None, seed)
        return self._unchanged[seed]

    def _first_round(self) -> None:
        """Each hypothesis once: its interventions in turn until one cures."""
        for number, test in enumerate(self._tests):
            tried: list[Trials] = []
            for intervention in test.interventions:
                if not self._laboratory.affords:
                    tried += [Trials(intervention, trouble=_NO_TIME)] if tried else []
                    break
                left = len(self._tests) - number - 1
                self._say(f"{test.cause}: with {intervention.changes} ({left} more causes to test)")
                trials = Trials(intervention)
                tried.append(trials)
                self._add(trials, 0)
                self._say(f"  {judge.sentence(trials)}")
                if trials.result == "confirmed":
                    break
            if tried:
                self.findings.tests.append((test, tried))
            else:
                self.findings.untested.append(test.cause)

    def _replicate(self, seed: int) -> None:
        """Repeat with another seed what decides: confirmations first."""
        for test, trials in self._deciding():
            if not self._laboratory.affords:
                return
            base = self._base(seed).outcome
            # Whether the failure needs this seed is not what is asked here.
            if base is None or not _fails(base, self._unchanged[0].outcome):
                self._say(f"seed {seed} says nothing: unchanged, it does not fail in this way")
                return
            if not self._laboratory.affords:
                return
            self._say(f"{test.cause}: with {trials.intervention.changes}, seed {seed}")
            self._add(trials, seed)

    def _deciding(self) -> Iterator[tuple[Test, Trials]]:
        chosen = [(t, b) for t, tried in self.findings.tests if (b := judge.best(tried))]
        for result in ("confirmed", "inconclusive", "refuted"):
            yield from [(t, b) for t, b in chosen if b.result == result and not b.trouble]

    @cached_property
    def _known(self) -> dict[str, Any]:
        """What interventions may need to know of the training that fails."""
        began = self._scope.began
        return context(that_began(self._record, began)) | {"began": began}

    def _add(self, trials: Trials, seed: int) -> None:
        result = self._laboratory.trial(trials.intervention, seed, self._known)
        base = self._base(seed).outcome
        trials.applied += result.status.applied
        trouble = self._trouble(trials.intervention, result)
        if trouble:
            trials.idle = result.status.applied == 0 and not result.status.trouble
            trials.trouble = trials.trouble or ("" if trials.pairs else trouble)
        elif base is not None and result.outcome is not None:
            what = trials.intervention
            trials.pairs.append(Pair(base, result.outcome, what.evaluates, what.rescales))

    def _trouble(self, intervention: Intervention, result: Result) -> str:
        """Why a trial says nothing about the cause, or an empty text."""
        if result.status.trouble and result.outcome is None:
            return f"the trial failed: {result.status.trouble} {result.stderr[-200:]}".strip()
        if result.status.trouble:
            return f"it could not be applied: {result.status.trouble}"
        if result.status.applied == 0:
            return f"it could not be applied: {intervention.unless}"
        if result.outcome is None:
            return "no training step was seen"
        short = result.outcome.steps < ENOUGH * self._scope.last and not result.outcome.broke
        base = self._unchanged[0].outcome
        if short and result.cut and (base is None or result.outcome.steps < base.steps):
            return f"it ran out of time at step {result.outcome.steps}"
        return ""


def same(original: Outcome, again: Outcome) -> bool:
    """Whether a repetition shows the failure of the original."""
    if original.broke or again.broke:
        return original.broke and again.broke
    return abs(original.learnt - again.learnt) <= NEAR or _fails(again, original)


def _fails(outcome: Outcome, pattern: Outcome | None) -> bool:
    if pattern is None:
        return False
    if pattern.broke:
        return outcome.broke
    return outcome.broke or outcome.learnt <= pattern.learnt + NEAR


def differences(record: Record, original: Outcome, result: Result) -> str:
    """What was different when the failure did not come back."""
    import platform
    from datetime import datetime
    from pathlib import Path

    run = record.facts.run
    if result.outcome is None:
        said = " ".join(result.stderr.split()[-40:]) or result.status.trouble
        return f"the repetition left no run to judge: {said}"
    found = [f"recorded: {original.kind}, loss {original.last:.4g} at the end; "
             f"now: {result.outcome.kind}, loss {result.outcome.last:.4g}"]  # fmt: skip
    if run.python and run.python != platform.python_version():
        found.append(f"Python {run.python} then, {platform.python_version()} now")
    script = Path(run.cwd) / next((w for w in run.command if w != "-m"), "")
    if script.is_file() and run.started:
        changed = script.stat().st_mtime > datetime.fromisoformat(run.started).timestamp()
        if changed:
            found.append("the script was changed after the run was recorded")
    if original.steps > result.outcome.steps:
        found.append(f"{original.steps} steps then, {result.outcome.steps} now")
    if len(found) == 1:
        found.append("the script may depend on random numbers that it does not seed")
    return "; ".join(found)
