"""Abduction: which causes best explain what was seen, and what was not seen.

Each cause is scored in log-odds: its prior, plus the weight of its own evidence, plus what
it gains by explaining the run's symptoms and loses for those it leaves unexplained. Then
causes are taken greedily, the best first; a later cause must live on what the earlier
ones do not explain already (explaining away), so few causes are preferred to many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from neuraldbg.core.causes import Cause, Finding, all_causes
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.symptoms import Symptom, symptoms
from neuraldbg.core.view import View

# A cause whose evidence a certain cause upstream brings about is discounted by this much.
YIELDS = 5.0
# A later cause that explains no symptom of its own is discounted by this much.
EXPLAINED_AWAY = 2.0
# From this weight on, evidence is a direct sight of the fault, not a symptom of it.
DIRECT = 4.0
# What a run loses before its first update is no work of an update.
EARLIER = 8.0
# Slope and offset from score to probability. `bench/calibrate.py` fits 0.66 and 1.68 to the
# generator's runs; flatter and lower here, since the engine was tuned with these runs in sight
# and is judged on others.
SLOPE, OFFSET = 0.5, 1.2
# A score of -2: of 126 sound runs one goes beyond, of the faults' first hypotheses nearly all.
REPORTED = 0.55
# Slope from score to how far a cause counts as established when others yield to it.
STANDING = 0.9


@dataclass(frozen=True, slots=True)
class Scored:
    """A cause with its finding and its score."""

    cause: Cause
    finding: Finding
    score: float
    explained: tuple[Symptom, ...]

    @property
    def confidence(self) -> float:
        """Probability that this is a cause of the failure."""
        return _logistic(SLOPE * self.score + OFFSET)

    @property
    def standing(self) -> float:
        """How far it is established, 0 to 1, when causes downstream yield to it."""
        return _logistic(STANDING * self.score)


def _logistic(x: float) -> float:
    # In the form that no score overflows.
    return 0.5 + 0.5 * math.tanh(0.5 * x)


def weigh_all(view: View, failed: Callable[[str, Exception], None]) -> list[Scored]:
    """Every cause that applies, scored, the best first.

    Args:
        view: The run.
        failed: Told the id and error of a cause whose function raised.
    """
    seen = symptoms(view)
    out = []
    for cause in all_causes().values():
        try:
            finding = cause.weigh(view)
            if finding is not None:
                out.append(_score(view, cause, finding, seen))
        except Exception as error:
            failed(cause.id, error)
    settled = yield_upstream(out)
    return explain_away(sorted(settled, key=lambda s: (-s.score, s.cause.id)))


def _score(view: View, cause: Cause, finding: Finding, seen: dict[str, Symptom]) -> Scored:
    explained = tuple(s for n, s in seen.items() if n in cause.explains)
    if cause.needs_update and _broken_at_start(view):
        text = "the loss is not finite before the first update"
        finding = replace(
            finding, evidence=(*finding.evidence, Evidence(text, -EARLIER, "loss", 0))
        )
    own = sum(e.weight for e in finding.evidence)
    if not math.isfinite(own):
        message = "its evidence has no finite weight"
        raise ValueError(message)
    covered = sum(s.weight for s in explained)
    left = sum(s.weight for n, s in seen.items() if n not in cause.explains)
    return Scored(cause, finding, cause.prior + own + covered - 0.5 * left, explained)


def _broken_at_start(view: View) -> bool:
    """Whether the loss of the very first step was seen, and is not finite."""
    series = view.path.series
    return len(series) > 0 and int(series.steps[0]) == 0 and not math.isfinite(series.values[0])


def yield_upstream(scored: list[Scored]) -> list[Scored]:
    """Discount causes whose evidence another cause, further upstream, brings about."""
    sure = {s.cause.id: s.standing for s in scored}
    out = []
    for s in scored:
        upstream = max((sure.get(c, 0.0) for c in s.cause.yields_to), default=0.0)
        out.append(Scored(s.cause, s.finding, s.score - YIELDS * upstream, s.explained))
    return out


def explain_away(ranked: list[Scored]) -> list[Scored]:
    """Discount causes whose symptoms better ones explain, unless they are seen directly."""
    taken: set[str] = set()
    out = []
    for i, item in enumerate(ranked):
        new = {s.name for s in item.explained} - taken
        direct = max((e.weight for e in item.finding.evidence), default=0.0) >= DIRECT
        loss = 0.0 if i == 0 or new or direct else EXPLAINED_AWAY
        if i > 0 and not direct:
            loss += _rivalry(ranked[0], item)
        out.append(Scored(item.cause, item.finding, item.score - loss, item.explained))
        if out[-1].score > 0:
            taken |= {s.name for s in item.explained}
    return sorted(out, key=lambda s: (-s.score, s.cause.id))


def _rivalry(best: Scored, other: Scored) -> float:
    """A certain best explanation leaves less room for others of the same symptoms."""
    shared = {s.name for s in best.explained} & {s.name for s in other.explained}
    return math.log1p(math.exp(min(best.score, 20.0))) * 0.3 if shared and best.score > 0 else 0.0
