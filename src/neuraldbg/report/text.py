"""The diagnosis as plain text, for somebody who wants to know what to change."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.core.facts import Gap
from neuraldbg.experiments.interventions import interventions_for
from neuraldbg.report import words
from neuraldbg.report.names import count, listing, plain
from neuraldbg.report.page import Page

_EVIDENCE = 6
_AGAINST = 3
_RIVALS = 5
_GAPS = 8


def render(diagnosis: Diagnosis, width: int = 80, run: str | None = None) -> str:
    """The report: the verdict, the cause and why, its rivals, what was not seen.

    Args:
        diagnosis: What was concluded.
        width: Columns.
        run: How to name the run in the commands at the end; its id by default.
    """
    page = Page(width)
    page.paragraph(words.headline(diagnosis))
    _faults(page, diagnosis.hypotheses)
    if not diagnosis.hypotheses:
        _watched(page, diagnosis)
    page.section("What could not be seen", gaps(diagnosis.gaps))
    page.blank()
    if diagnosis.facts.run.steps:
        page.paragraph(words.cost(diagnosis.overhead.ratio, diagnosis.overhead.seconds))
    _further(page, diagnosis, run or diagnosis.facts.run.id)
    return page.text()


def gaps(found: Sequence[Gap], most: int = _GAPS) -> list[str]:
    """What could not be observed: one sentence for each reason."""
    by_reason: dict[str, list[str]] = {}
    for gap in found:
        by_reason.setdefault(plain(gap.why), []).append(plain(gap.what))
    said = [f"{listing(whats)}: {why}" for why, whats in by_reason.items()]
    rest = len(said) - most
    return said[:most] + ([f"and {rest} more; `--json` lists all of them"] if rest > 0 else [])


def _faults(page: Page, ranked: Sequence[CausalHypothesis]) -> None:
    """Every likely fault in full; where none is likely, the best guess."""
    faults = [h for h in ranked if h.confidence >= words.LIKELY] or list(ranked[:1])
    if len(faults) > 1:
        page.paragraph(f"{len(faults)} faults are likely, and present at the same time.")
    for number, fault in enumerate(faults, 1):
        page.blank()
        if len(faults) > 1:
            page.verbatim(f"Fault {number} of {len(faults)}")
        _fault(page, fault)
    rivals = [h for h in ranked if h not in faults]
    page.section("What else it could be", [_rival(h) for h in rivals[:_RIVALS]])


def _fault(page: Page, fault: CausalHypothesis) -> None:
    page.paragraph(words.cause(fault), "Cause  ")
    page.paragraph(listing(fault.where) or "the whole run", "Where  ")
    if fault.first_step is not None:
        page.paragraph(f"step {fault.first_step}", "Since  ")
    page.paragraph(words.confidence(fault.confidence), "Sure   ")
    if fault.experiment:
        page.paragraph(words.experiment(fault.experiment), "Tested ")
    strongest = sorted(fault.evidence, key=lambda e: -e.weight)
    said = [words.evidence(e) for e in strongest]
    page.section("Why we think so", said[:_EVIDENCE], numbered=True)
    opposed = sorted(fault.against, key=lambda e: e.weight)
    page.section("What speaks against it", [words.evidence(e) for e in opposed[:_AGAINST]])
    page.section("How it led there", [link.text for link in fault.chain], numbered=True)
    page.section("What to change", [fault.repair] if fault.repair else [])


def _rival(rival: CausalHypothesis) -> str:
    return f"{rival.confidence:.2f}  {words.cause(rival)}"


def _watched(page: Page, diagnosis: Diagnosis) -> None:
    facts = diagnosis.facts
    if not facts.run.steps:
        return
    seen = f"{count(len(facts.modules), 'module')} and {count(len(facts.params), 'parameter')}"
    changes = count(len(diagnosis.events), "change")
    page.paragraph(f"Watched {seen} on {plain(facts.run.device)}; {changes} of state, no fault.")


def _further(page: Page, diagnosis: Diagnosis, run: str) -> None:
    """Commands to go on with; a healthy run needs none."""
    if not diagnosis.hypotheses or not run:
        return
    name = shlex.quote(run)
    page.blank()
    page.verbatim("Go on with")
    if testable(diagnosis):
        page.verbatim(f"  neuraldbg verify {name}")
    page.verbatim(f"  neuraldbg report {name}")
    page.verbatim(f"  neuraldbg show {name} --events")
    page.verbatim(f"  neuraldbg explain {name} --json")


def testable(diagnosis: Diagnosis) -> bool:
    """Whether an experiment could say more: a script to run again, and a cause not yet tested."""
    if not words.repeatable(diagnosis.facts.run):
        return False
    untested = not any(h.experiment for h in diagnosis.hypotheses)
    return untested and any(interventions_for(h.cause) for h in diagnosis.hypotheses)
