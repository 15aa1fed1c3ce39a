"""Results of experiments, kept in the run file and put into every later diagnosis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.core.infer import REPORTED
from neuraldbg.experiments.judge import OVERSHADOWED, updated

PLAUSIBLE: Final = 0.02
"""Confidence from which a cause is tested under `--all-plausible`."""


def parse(text: str | None) -> dict[str, Any] | None:
    """Stored results; None if there are none that can be read."""
    if text is None:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) and isinstance(data.get("tests"), list) else None


def apply(plausible: Diagnosis, data: Mapping[str, Any]) -> Diagnosis:
    """A diagnosis with its hypotheses weighed again by what the experiments showed.

    Args:
        plausible: The diagnosis with every hypothesis of at least `PLAUSIBLE`.
        data: As `Findings.as_data` makes it.
    """
    tests = {t["cause"]: t for t in data["tests"]}
    confirmed = any(t["experiment"]["result"] == "confirmed" for t in tests.values())
    weighed = [_weigh(h, tests.get(h.cause), confirmed=confirmed) for h in plausible.hypotheses]
    # What an experiment refuted is no first answer, however sure the engine was before.
    ranked = sorted(weighed, key=lambda h: (_is_refuted(h), -h.confidence))
    told = [h for h in ranked if h.confidence >= REPORTED or h.cause in tests]
    return replace(plausible, hypotheses=tuple(told or ranked[:1]))


def _is_refuted(found: CausalHypothesis) -> bool:
    return found.experiment is not None and found.experiment["result"] == "refuted"


def _weigh(
    found: CausalHypothesis, test: Mapping[str, Any] | None, *, confirmed: bool
) -> CausalHypothesis:
    if test is None:
        by = OVERSHADOWED if confirmed else 0.0
        return replace(found, confidence=round(updated(found.confidence, by), 4)) if by else found
    experiment = {**test["experiment"], "confidence_before": found.confidence}
    confidence = round(updated(found.confidence, float(test["shift"])), 4)
    return replace(found, confidence=confidence, experiment=experiment)
