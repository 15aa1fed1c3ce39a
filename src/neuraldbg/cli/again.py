"""The part of `verify` that looks again at a step which fell between two looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.cli import output, runs

if TYPE_CHECKING:
    from neuraldbg.experiments.relook import Window


def missed(opened: runs.Opened) -> Window | None:
    """The steps to look at again; None where there are none."""
    from neuraldbg.experiments import relook
    from neuraldbg.store.reader import RunFile

    with RunFile(opened.path) as file:
        return relook.window(opened.record, file.events())


def plan(steps: Window) -> str:
    """What will be done, in a line of the plan."""
    return (
        f"Before    up to step {steps.last}, with a look at each from step {steps.first}: what "
        f"made the first non-finite value, at step {steps.broke}, fell between two looks"
    )


def look(opened: runs.Opened, steps: Window, seconds: float) -> float:
    """Repeat the run up to the step, and keep what it shows with the run.

    Returns:
        Seconds of the budget that are left.
    """
    from neuraldbg.experiments import relook
    from neuraldbg.experiments.outcome import Scope
    from neuraldbg.experiments.runner import Runner
    from neuraldbg.store import amend

    notices = output.Notices()
    notices.say(
        f"looking again at steps {steps.first} to {steps.last}: what made the first non-finite "
        f"value, at step {steps.broke}, fell between two looks"
    )
    with Runner(opened.record.facts.run, Scope(steps.last), seconds) as runner:
        seen = runner.look_again(steps.first, steps.last)
        left = max(runner.left, 1.0)
    if seen is None:
        notices.say("  the repetition left nothing to read")
        return left
    found = relook.findings(*seen)
    amend.events(opened.path, found)
    notices.say(f"  {relook.told(seen[0], found, steps.broke)}")
    return left
