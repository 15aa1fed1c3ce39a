"""`neuraldbg verify`: test the leading causes of a run by experiment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from neuraldbg.cli import again, output, runs
from neuraldbg.cli.explain import render
from neuraldbg.cli.parsing import Parser
from neuraldbg.errors import UsageError

if TYPE_CHECKING:
    from neuraldbg.core.record import Record
    from neuraldbg.experiments.outcome import Scope
    from neuraldbg.experiments.plan import Test

SECONDS: Final = 120.0
_MORE: Final = """\
Runs the recorded command again, in a scratch copy of its working directory: unchanged
first, then once for each thing that could be the cause, with that one thing changed from
outside. Your files are not edited. The results are kept in the run file.
"""
_WARNING: Final = """\
This runs the recorded command again, several times, on this machine:
  {command}
Files that it writes go to a scratch copy, but what it does over a network, to a database
or through other programs is done for real.
"""


def main(words: Sequence[str]) -> int:
    """Plan, ask, run the trials, and print the diagnosis as it stands then."""
    parser = Parser("verify", _MORE)
    parser.takes_run()
    parser.takes_json()
    parser.add_argument(
        "--budget", metavar="SECONDS", type=float, default=SECONDS, help="for all trials (120)"
    )
    parser.add_argument("--seeds", metavar="N", type=int, default=3, help="replicates at most (3)")
    parser.add_argument("--all-plausible", action="store_true", help="test every plausible cause")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--yes", action="store_true", help="do not ask before running")
    options = parser.parse_args(words)
    _check(options)
    opened = runs.diagnose(options.run)
    tests = _tests(opened, every=options.all_plausible)
    missed = again.missed(opened)
    if options.dry_run:
        told = [again.plan(missed)] if missed else []
        output.result(_plan_text(opened, tests, options.budget, told))
        return 0
    if not tests and missed is None:
        output.notice(_nothing(opened))
    elif options.yes or _agreed(opened.record):
        left = options.budget
        if missed is not None:
            left = again.look(opened, missed, left)
            opened = runs.diagnose(str(opened.path))
            tests = _tests(opened, every=options.all_plausible)
        if tests:
            _carry_out(opened, tests, left, options.seeds)
    else:
        output.notice("verify: nothing was run")
        return 2
    output.result(render(runs.diagnose(str(opened.path)), options.run, as_json=options.json))
    return 0


def _check(options: Any) -> None:  # noqa: ANN401 - what argparse returns
    if not 0 < options.budget < float("inf"):
        msg = f"--budget is a number of seconds above 0, not {options.budget:g}"
        raise UsageError(msg)
    if options.seeds < 1:
        msg = f"--seeds is a number of replicates, at least 1, not {options.seeds}"
        raise UsageError(msg)


def _tests(opened: runs.Opened, *, every: bool) -> list[Test]:
    """What to test; hypotheses as they were before any experiment."""
    from neuraldbg.core.engine import diagnose
    from neuraldbg.core.infer import REPORTED
    from neuraldbg.core.trainings import that_began
    from neuraldbg.experiments.plan import plan
    from neuraldbg.experiments.results import PLAUSIBLE
    from neuraldbg.store.reader import RunFile

    with RunFile(opened.path) as file:
        events = file.events()
    found = diagnose(opened.record, events, least=PLAUSIBLE if every else REPORTED)
    return plan(found.hypotheses, that_began(opened.record, found.began), every=every)


def _nothing(opened: runs.Opened) -> str:
    if not opened.diagnosis.hypotheses:
        return "verify: no cause is suspected, so there is nothing to test"
    causes = ", ".join(h.cause for h in opened.diagnosis.hypotheses)
    return f"verify: no experiment on this run alone can test what is suspected ({causes})"


def _agreed(record: Record) -> bool:
    from neuraldbg.core.privacy import redact

    output.Notices().block(_WARNING.format(command=" ".join(redact(record.facts.run.command))))
    if not sys.stdin.isatty():
        output.notice("verify: pass --yes to run it without being asked")
        return False
    output.Notices().block("Go on? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _carry_out(opened: runs.Opened, tests: list[Test], seconds: float, seeds: int) -> None:
    from neuraldbg.experiments.runner import Runner
    from neuraldbg.experiments.verify import Experiment
    from neuraldbg.report.json import encode
    from neuraldbg.store import amend

    notices = output.Notices()
    scope = _scope(opened, tests, seconds)
    with Runner(opened.record.facts.run, scope, seconds) as runner:

        def say(text: str) -> None:
            notices.say(f"[{max(runner.left, 0):4.0f} s left] {text}")

        findings = Experiment(opened.record, tests, runner, scope, say).run(seeds)
        if runner.redirected:
            kept = ", ".join(sorted(runner.redirected)[:4])
            notices.say(f"the script writes outside its folder; kept from: {kept}")
    data = findings.as_data()
    amend.experiments(opened.path, encode(data, None))
    for line in _summary(data):
        notices.say(line)


def _scope(opened: runs.Opened, tests: list[Test], budget: float) -> Scope:
    from neuraldbg.experiments.window import NEVER, scope

    evaluates = any(i.evaluates for test in tests for i in test.interventions)
    judged = scope(opened.record, opened.diagnosis.began, budget)
    return replace(judged, last=NEVER) if evaluates else judged


def _summary(data: dict[str, Any]) -> list[str]:
    """What is said at the end, besides the diagnosis."""
    said = []
    if data["interrupted"]:
        said.append("interrupted; what was done so far is kept")
    if not data["reproduced"] and not data["interrupted"]:
        said.append(f"did not reproduce: {data['differed']}")
    if data["smallest"]:
        said.append(f"several changes cure it; the smallest: {data['smallest']}")
    if data["untested"]:
        said.append(f"the budget did not suffice for: {', '.join(data['untested'])}")
    results = [t["experiment"]["result"] for t in data["tests"]]
    if data["reproduced"] and results and set(results) == {"refuted"}:
        said.append("all tested causes are refuted; --all-plausible tests more")
    return said


def _plan_text(opened: runs.Opened, tests: list[Test], budget: float, before: list[str]) -> str:
    from neuraldbg.core.privacy import redact

    last = _scope(opened, tests, budget).last
    lines = [
        f"Command:  {' '.join(redact(opened.record.facts.run.command))}",
        f"Each trial ends after step {last}; all within {budget:g} s.",
        *before,
        "First     unchanged: the failure must come back",
    ]
    for test in tests:
        lines.append(f"To test   {test.cause} ({test.hypothesis.confidence:.2f})")
        for i in test.interventions:
            lines.append(f"            with {i.changes}")
            lines.append(f"              not if {i.unless}; side effects: {i.side_effects}")
    return "\n".join(lines if tests else [*lines, "Nothing to test."]) + "\n"
