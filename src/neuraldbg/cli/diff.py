"""`neuraldbg diff`: where two runs part, and what that changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from neuraldbg.cli import output, runs, terminal
from neuraldbg.cli.parsing import RUN_HELP, Parser
from neuraldbg.report.page import Page

if TYPE_CHECKING:
    from neuraldbg.cli.runs import Opened
    from neuraldbg.core.facts import Facts, RunFact
    from neuraldbg.core.parting import Apart, Comparison

_SIDES = {
    "forward": "the output of {}",
    "backward": "the gradient at the output of {}",
    "batch": "the data ({})",
}
_INCOMPARABLE = 2


def main(words: Sequence[str]) -> int:
    """Compare two runs; exit 0 if they agree, 1 if they part, 2 if that cannot be told."""
    from neuraldbg.core.parting import compare

    parser = Parser("diff", "Say where two runs part. Exit 0 if nowhere, 1 if they do.")
    parser.add_argument("one", metavar="RUN_A", help=RUN_HELP)
    parser.add_argument("other", metavar="RUN_B", help=RUN_HELP)
    parser.takes_json()
    options = parser.parse_args(words)
    one, other = runs.diagnose(options.one), runs.diagnose(options.other)
    found = compare(one.record, other.record)
    change = Change.between(one, other)
    if options.json:
        from neuraldbg.report.json import encode

        output.result(encode(_data(one, other, found, change)) + "\n")
    else:
        text = _text(one, other, found, change)
        terminal.result(text + (_curves(one, other) if terminal.wanted(sys.stdout) else ""))
    if found.obstacle:
        return _INCOMPARABLE
    return int(found.first is not None)


@dataclass(frozen=True, slots=True)
class Change:
    """What is another in the second run.

    Attributes:
        verdict: Both verdicts.
        gone, new: Causes that only the first, or only the second run has.
        settings: By name, both values.
    """

    verdict: tuple[str, str]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    settings: dict[str, tuple[Any, Any]]

    @classmethod
    def between(cls, one: Opened, other: Opened) -> Change:
        """Compare two diagnoses, and what the runs were set to."""
        mine, theirs = ([h.cause for h in x.diagnosis.hypotheses] for x in (one, other))
        before, after = (dict(_settings(x.record.facts)) for x in (one, other))
        return cls(
            (one.diagnosis.verdict, other.diagnosis.verdict),
            tuple(c for c in mine if c not in theirs),
            tuple(c for c in theirs if c not in mine),
            {
                name: (before.get(name), after.get(name))
                for name in sorted(before | after)
                if before.get(name) != after.get(name)
            },
        )


def _settings(facts: Facts) -> Iterator[tuple[str, Any]]:
    """What the user sets, by name."""
    run = facts.run
    yield from (("torch", run.torch), ("device", run.device), ("steps", run.steps))
    yield "compiled", run.backend or run.compiled
    for optimizer in facts.optimizers:
        name = f"optimizer {optimizer.index}"
        yield name, optimizer.kind
        for g, group in enumerate(optimizer.groups):
            yield from ((f"{name}, group {g}, {key}", value) for key, value in group.items())
    for module in facts.modules:
        yield f"module {module.name or '(root)'}", module.kind
        for key, value in module.config.items():
            yield f"module {module.name or '(root)'}, {key}", value


def _text(one: Opened, other: Opened, found: Comparison, change: Change) -> str:
    page = Page()
    page.paragraph(_named(one.record.facts.run), "A: ")
    page.paragraph(_named(other.record.facts.run), "B: ")
    page.blank()
    page.paragraph(_verdict(found))
    page.section("Diagnosis", _diagnosis(change))
    changed = (f"{name}: {a} in A, {b} in B" for name, (a, b) in change.settings.items())
    page.section("Settings", changed)
    return page.text()


def _curves(one: Opened, other: Opened) -> str:
    """Both losses as lines of bars, for a person at a terminal."""
    from neuraldbg.core.facts import Kind
    from neuraldbg.core.metrics import L_VALUE
    from neuraldbg.report import spark

    both = (("A", one.record), ("B", other.record))
    drawn = [(name, spark.told(r.series(Kind.LOSS, "loss", L_VALUE))) for name, r in both]
    lines = "".join(f"  {name}  {told}\n" for name, told in drawn if told)
    return f"\nLoss\n{lines}" if lines else ""


def _named(run: RunFact) -> str:
    from neuraldbg.core.privacy import redact

    mode = f"compiled ({run.backend or 'backend unknown'})" if run.compiled else "eager"
    return f"{run.id}: {' '.join(redact(run.command))}, {mode}, {run.steps} steps"


def _verdict(found: Comparison) -> str:
    if found.obstacle:
        return f"They cannot be compared: {found.obstacle}."
    if found.first is None:
        looks = f"{len(found.steps)} steps that were looked at in both"
        return f"They agree within the rounding of {found.dtype} on the {looks}."
    return _parted(found.first, found)


def _parted(first: Apart, found: Comparison) -> str:
    place = _SIDES[first.side].format(first.where or "the model itself")
    a, b = first.values
    return (
        f"They part at step {first.step}, in {place}: {first.metric} is {a:.6g} in A and {b:.6g} "
        f"in B. That is {first.roundings:.3g} times the difference that the rounding of "
        f"{found.dtype} explains there. What was computed before it agrees."
    )


def _diagnosis(change: Change) -> Iterator[str]:
    a, b = change.verdict
    yield f"verdict: {a} in both" if a == b else f"verdict: {a} in A, {b} in B"
    yield from (f"only in A: {cause}" for cause in change.gone)
    yield from (f"only in B: {cause}" for cause in change.new)


def _data(one: Opened, other: Opened, found: Comparison, change: Change) -> dict[str, Any]:
    from neuraldbg.report.json import run

    first = None if found.first is None else asdict(found.first)
    return {
        "runs": [run(x.record.facts.run) for x in (one, other)],
        "comparable": not found.obstacle,
        "obstacle": found.obstacle or None,
        "first": first,
        "steps_compared": len(found.steps),
        "dtype": found.dtype,
        "diagnosis": {"verdict": change.verdict, "only_a": change.gone, "only_b": change.new},
        "settings": change.settings,
    }
