"""The diagnosis as JSON, schema version 1.

Non-finite numbers are the strings "nan", "inf" and "-inf": the tokens NaN and Infinity
are not JSON. The working directory is left out, the home directory is written `~`, and
the values of options that look like secrets are masked, so that a file can be shared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from neuraldbg.core.diagnosis import (
    SCHEMA_VERSION,
    CausalHypothesis,
    Diagnosis,
    Evidence,
)
from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.facts import Facts, Overhead, RunFact
from neuraldbg.core.metrics import N_EXCEPTION
from neuraldbg.core.privacy import redact


def dumps(diagnosis: Diagnosis, indent: int | None = 2) -> str:
    """The diagnosis as a JSON text."""
    return encode(to_dict(diagnosis), indent)


def encode(data: object, indent: int | None = 2) -> str:
    """Any plain data as strict JSON."""
    return json.dumps(clean(data), indent=indent, allow_nan=False)


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain data that any JSON writer takes."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "run": run(diagnosis.facts.run),
        "verdict": diagnosis.verdict,
        "headline": diagnosis.headline,
        "hypotheses": [_hypothesis(h) for h in diagnosis.hypotheses],
        "events": [event(e) for e in diagnosis.events],
        "couplings": diagnosis.couplings,
        "gaps": diagnosis.gaps,
        "overhead": _overhead(diagnosis.overhead),
    }
    cleaned: dict[str, Any] = clean(data)
    return cleaned


def run(fact: RunFact) -> dict[str, Any]:
    """What is public about a run. One that was cut off counts as interrupted."""
    exception = fact.notes.get(N_EXCEPTION)
    return {
        "id": fact.id,
        "command": redact(fact.command),
        "started": fact.started,
        "finished": fact.finished or "interrupted",
        "steps": fact.steps,
        "compiled": fact.compiled,
        "backend": fact.backend,
        "device": fact.device,
        "world_size": fact.world_size,
        "torch": fact.torch,
        "python": fact.python,
        "neuraldbg": fact.neuraldbg,
        **({"exception": exception} if exception is not None else {}),
    }


def facts(known: Facts) -> dict[str, Any]:
    """All static facts as plain data."""
    data = {
        "run": {**run(known.run), "notes": known.run.notes},
        "modules": known.modules,
        "params": known.params,
        "optimizers": known.optimizers,
        "losses": known.losses,
        "gaps": known.gaps,
        "overhead": _overhead(known.overhead),
    }
    cleaned: dict[str, Any] = clean(data)
    return cleaned


def event(happened: SemanticEvent) -> dict[str, Any]:
    """One event, with its states under `from` and `to`."""
    return {
        "id": happened.id,
        "kind": happened.kind,
        "where": happened.where,
        "step": happened.step,
        "from": happened.before,
        "to": happened.after,
        "confidence": happened.confidence,
        "metadata": happened.metadata,
    }


def _hypothesis(found: CausalHypothesis) -> dict[str, Any]:
    return {
        "cause": found.cause,
        "confidence": found.confidence,
        "where": found.where,
        "first_step": found.first_step,
        "summary": found.summary,
        "chain": [{"event": link.event, "text": link.text} for link in found.chain],
        "evidence": [_evidence(e) for e in found.evidence],
        "against": [_evidence(e) for e in found.against],
        "repair": found.repair,
        "experiment": found.experiment,
    }


def _evidence(seen: Evidence) -> dict[str, Any]:
    return {
        "text": seen.text,
        "weight": seen.weight,
        "where": seen.where,
        "step": seen.step,
        "values": seen.values,
    }


def _overhead(cost: Overhead) -> dict[str, float | None]:
    known = cost.ratio is not None and math.isfinite(cost.ratio)
    return {"ratio": cost.ratio if known else None, "seconds": cost.seconds}


def clean(value: Any) -> Any:  # noqa: ANN401 - plain data has no narrower type
    """Plain data: dataclasses as dicts, tuples as lists, numbers as Python's own."""
    if isinstance(value, Enum):
        return clean(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [clean(v) for v in value]
    if is_dataclass(value):
        return {f.name: clean(getattr(value, f.name)) for f in fields(value)}
    return clean(value.item()) if hasattr(value, "item") else str(value)
