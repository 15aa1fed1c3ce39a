"""What the engine concludes about a draft, and whether it is what it should be."""

from __future__ import annotations

from neuraldbg.core.diagnosis import CausalHypothesis
from neuraldbg.core.engine import diagnose

from ..records import Draft


def blamed(draft: Draft) -> CausalHypothesis:
    """The first hypothesis; a test fails where there is none, or where a cause raised."""
    found = diagnose(draft.build())
    assert not found.gaps
    assert found.hypotheses, f"nothing was found: {found.headline}"
    return found.hypotheses[0]


def accused(draft: Draft) -> list[str]:
    """The causes that are reported, the best first."""
    found = diagnose(draft.build())
    assert not found.gaps
    return [h.cause for h in found.hypotheses]


def confidence(draft: Draft, cause: str) -> float:
    """How sure the engine is of a cause; 0 if it is not reported."""
    found = diagnose(draft.build())
    assert not found.gaps
    return next((h.confidence for h in found.hypotheses if h.cause == cause), 0.0)


def convict(
    draft: Draft, cause: str, *, where: str | None = None, step: int | None = 0
) -> CausalHypothesis:
    """Assert that a cause comes first, at the right place and step, with a repair.

    Args:
        draft: The run.
        cause: Id of the expected cause.
        where: The most telling place; None if the cause has no place.
        step: Where it began; None if it has no beginning.
    """
    best = blamed(draft)
    assert best.cause == cause
    assert best.where[:1] == (() if where is None else (where,))
    assert best.first_step == step
    assert best.repair
    assert best.summary
    assert best.evidence
    return best


def texts(hypothesis: CausalHypothesis) -> str:
    """All that speaks for a hypothesis, in one text."""
    return "\n".join(e.text for e in hypothesis.evidence)
