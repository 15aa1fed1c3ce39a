"""Assertions on a diagnosis, whose messages say what was found instead, and why."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from neuraldbg.core.causes import all_causes
from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.errors import UsageError

SHOWN = 5  # hypotheses and pieces of evidence that a message lists


def assert_healthy(diagnosis: Diagnosis, *, allow: Collection[str] = ()) -> None:
    """Assert that nothing was found.

    Args:
        diagnosis: Of a run that should be sound.
        allow: Causes that may be named all the same.

    Raises:
        AssertionError: Another cause is named. The message holds its evidence and repair.
        UsageError: A name in `allow` is not in the vocabulary of causes.
    """
    for cause in allow:
        _known(cause)
    found = [h for h in diagnosis.hypotheses if h.cause not in allow]
    if found:
        raise AssertionError(_unexpected(diagnosis, found))


def assert_explains(
    diagnosis: Diagnosis, cause: str, where: str | None = None, *, top: int = 1
) -> None:
    """Assert that a diagnosis names a cause, and where it sits.

    Args:
        diagnosis: Of a run with a known fault.
        cause: The id of the cause, e.g. `lr_too_high`.
        where: A module or parameter that must be named, or lie inside or around one.
        top: Among how many of the first hypotheses it must be.

    Raises:
        AssertionError: It is not. The message says what was found instead, and what spoke
            against the cause.
        UsageError: `cause` is not in the vocabulary of causes.

    Example:
        >>> assert_explains(dbg.diagnosis(), "nonfinite_input")  # doctest: +SKIP
    """
    _known(cause)
    rank = next((i for i, h in enumerate(diagnosis.hypotheses, 1) if h.cause == cause), None)
    if rank is None:
        raise AssertionError(_missing(diagnosis, cause))
    hypothesis = diagnosis.hypotheses[rank - 1]
    if rank > top:
        raise AssertionError(_outranked(diagnosis, hypothesis, rank, top))
    if where is not None and not any(_same_place(w, where) for w in hypothesis.where):
        raise AssertionError(_elsewhere(hypothesis, where))


def _known(cause: str) -> None:
    causes = all_causes()
    if cause not in causes:
        near = difflib.get_close_matches(cause, causes, n=3) or sorted(causes)
        msg = f"there is no cause {cause!r}; did you mean {', '.join(near)}?"
        raise UsageError(msg)


def _same_place(said: str, wanted: str) -> bool:
    return said == wanted or said.startswith(f"{wanted}.") or wanted.startswith(f"{said}.")


def _unexpected(diagnosis: Diagnosis, found: list[CausalHypothesis]) -> str:
    first = found[0]
    lines = [
        f"the run should be healthy, but the verdict is {diagnosis.verdict!r}:",
        *(_line(h) for h in found[:SHOWN]),
        *(f"    because {e.text}" for e in first.evidence[:SHOWN]),
        f"    repair: {first.repair}",
        f"If this is meant to be so, allow it: assert_healthy(..., allow=[{first.cause!r}]).",
    ]
    return "\n".join(lines)


def _missing(diagnosis: Diagnosis, cause: str) -> str:
    lines = [f"{cause} is not among the hypotheses. {_run(diagnosis)}"]
    lines += [_line(h) for h in diagnosis.hypotheses[:SHOWN]]
    lines += [f"    not observed: {g.what} ({g.why})" for g in diagnosis.gaps[:SHOWN]]
    wanted = all_causes()[cause]
    lines.append(f"It would show as: {'; '.join(wanted.chain)}." if wanted.chain else "")
    if not diagnosis.hypotheses:
        lines.append(
            "Nothing at all was found: either the fault did no harm (look at the headline), "
            "or the run was too short to tell."
        )
    return "\n".join(filter(None, lines))


def _outranked(diagnosis: Diagnosis, found: CausalHypothesis, rank: int, top: int) -> str:
    wanted = "first" if top == 1 else f"among the first {top}"
    lines = [f"{found.cause} should be {wanted}, and is number {rank}. {_run(diagnosis)}"]
    lines += [_line(h) for h in diagnosis.hypotheses[:SHOWN]]
    lines += [f"    against it: {e.text}" for e in found.against[:SHOWN]]
    lines.append(f"If that order is fine, ask for it: assert_explains(..., top={rank}).")
    return "\n".join(lines)


def _elsewhere(found: CausalHypothesis, where: str) -> str:
    said = ", ".join(found.where) or "nowhere in particular"
    return (
        f"{found.cause} was found, but not at {where!r}: it is said to sit at {said}.\n"
        "Names are those of the model itself, as in named_modules(), without wrappers."
    )


def _run(diagnosis: Diagnosis) -> str:
    verdict = f"The verdict is {diagnosis.verdict!r}"
    return f"{verdict}: {diagnosis.headline}." if diagnosis.headline else f"{verdict}."


def _line(hypothesis: CausalHypothesis) -> str:
    return f"  {hypothesis.cause} ({hypothesis.confidence:.2f}): {hypothesis.summary}"
