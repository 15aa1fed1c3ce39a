"""Words for numbers and states, the same in every report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis, Evidence
from neuraldbg.core.facts import RunFact
from neuraldbg.core.metrics import N_EXCEPTION
from neuraldbg.report.names import count, plain

LIKELY: Final = 0.5
"""At and above this confidence a hypothesis is presented as a fault, below it as a rival."""

# What stands for the script where Python runs none.
_NO_SCRIPT: Final = frozenset({"", "-", "-c", "ipykernel_launcher.py", "notebook"})

_SURE: Final = (
    (0.95, "almost certain"),
    (0.75, "very likely"),
    (LIKELY, "likely"),
    (0.25, "possible"),
    (0.0, "unlikely"),
)


def confidence(value: float) -> str:
    """How sure, in words and as a number.

    Example:
        >>> confidence(0.8)
        'very likely (0.80)'
    """
    word = next((word for least, word in _SURE if value >= least), "unlikely")
    return f"{word} ({value:.2f})"


def headline(diagnosis: Diagnosis) -> str:
    """The first line of every report: the verdict, and what the run did."""
    steps = diagnosis.facts.run.steps
    said = plain(diagnosis.headline)
    if diagnosis.verdict == "healthy" and not steps:
        return "NOTHING SEEN: " + (said or "no training step was observed.")
    if diagnosis.verdict == "healthy":
        quiet = f"HEALTHY: nothing suspicious in {count(steps, 'step')}."
        said = said.removesuffix(f" ({steps} steps)")
        return " ".join(filter(None, [quiet, _sentence(said), ended(diagnosis)]))
    likely = sum(h.confidence >= LIKELY for h in diagnosis.hypotheses) or 1
    fallback = f"{count(likely, 'likely fault')} in {count(steps, 'step')}."
    return f"{diagnosis.verdict.upper()}: {said or fallback}"


def _sentence(said: str) -> str:
    """A clause made a sentence of its own."""
    return said[:1].upper() + said[1:] + ("" if said.endswith(".") or not said else ".")


def ended(diagnosis: Diagnosis) -> str:
    """How a run ended, if not well; empty if it did."""
    run = diagnosis.facts.run
    if run.finished == "exception":
        exception = plain(run.notes.get(N_EXCEPTION) or "an exception")
        return f"The script ended with {exception}."
    return "It was interrupted." if run.finished != "ok" else ""


def repeatable(run: RunFact) -> bool:
    """Whether there is a command that trains again, as there is none for a notebook."""
    return next(iter(run.command), "") not in _NO_SCRIPT


def cause(found: CausalHypothesis) -> str:
    """The cause in one sentence, with its id."""
    return f"{plain(found.summary) or found.cause.replace('_', ' ')} [{plain(found.cause)}]"


def evidence(seen: Evidence) -> str:
    """One observation, with its place and step where the sentence does not name them."""
    text = plain(seen.text)
    where = plain(seen.where or "")
    marks = [where] if where and where not in text else []
    if seen.step is not None and f"step {seen.step}" not in text:
        marks.append(f"step {seen.step}")
    return f"{text} ({', '.join(marks)})" if marks else text


def experiment(outcome: Mapping[str, Any]) -> str:
    """The outcome of an intervention, in one sentence."""
    runs = outcome.get("replicates")
    tried = f" in {count(runs, 'run')}" if isinstance(runs, int) else ""
    again = "" if outcome.get("reproduced", True) else "; unchanged, the fault did not come back"
    if "text" in outcome:
        return _tested(outcome)
    said = f"{outcome.get('result', 'inconclusive')} by {outcome.get('intervention', 'a change')}"
    return f"{said}{tried}{again}"


def _tested(outcome: Mapping[str, Any]) -> str:
    """The outcome with its numbers, as the experiment itself words it."""
    if not outcome.get("reproduced", True):
        return "not testable: run again unchanged, the failure did not come back"
    result = outcome.get("result")
    heads = {
        "confirmed": "CONFIRMED, this cause is necessary",
        "refuted": "REFUTED",
        "inconclusive": "inconclusive",
    }
    return f"{heads.get(str(result), result)}: {plain(outcome['text'])}"


def cost(ratio: float | None, seconds: float) -> str:
    """What watching cost."""
    if ratio is None:
        return f"Watching took {seconds:.2g} s."
    return f"Watching cost {100 * ratio:.1f} % of the run's time ({seconds:.2g} s)."
