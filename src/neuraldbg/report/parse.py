"""A diagnosis read back from its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from neuraldbg.core.diagnosis import (
    SCHEMA_VERSION,
    CausalHypothesis,
    Coupling,
    Diagnosis,
    Evidence,
    Link,
)
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Facts, Gap, Overhead, RunFact
from neuraldbg.core.metrics import N_EXCEPTION
from neuraldbg.errors import RunFileError

_NONFINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def loads(text: str) -> Diagnosis:
    """The diagnosis in a JSON text.

    Raises:
        RunFileError: The text is not a diagnosis of a schema version that is known here.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        msg = f"not a diagnosis: the text is not JSON ({error}); diagnose the run file again"
        raise RunFileError(msg) from error
    return from_dict(data)


def from_dict(data: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis in plain data, the inverse of `report.json.to_dict`.

    Raises:
        RunFileError: A key is missing, or the schema version is not known here.
    """
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if version != SCHEMA_VERSION:
        msg = (
            f"not a diagnosis of schema version {SCHEMA_VERSION}: schema_version is {version!r}; "
            f"read it with the NeuralDBG that wrote it, or diagnose the run file again"
        )
        raise RunFileError(msg)
    try:
        return _diagnosis(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"a damaged diagnosis ({type(error).__name__}: {error}); diagnose the run file again"
        raise RunFileError(msg) from error


def _diagnosis(data: Mapping[str, Any]) -> Diagnosis:
    gaps = tuple(Gap(g["what"], g["why"]) for g in data["gaps"])
    cost = Overhead(data["overhead"]["ratio"], data["overhead"]["seconds"])
    return Diagnosis(
        facts=Facts(_run(data["run"]), gaps=gaps, overhead=cost),
        verdict=data["verdict"],
        hypotheses=tuple(_hypothesis(h) for h in data["hypotheses"]),
        events=tuple(_event(e) for e in data["events"]),
        couplings=tuple(_coupling(c) for c in data["couplings"]),
        gaps=gaps,
        overhead=cost,
        headline=data.get("headline", ""),
    )


def _run(data: Mapping[str, Any]) -> RunFact:
    names = ("started", "neuraldbg", "python", "torch", "device", "compiled", "backend")
    more = {k: data[k] for k in (*names, "world_size", "steps", "finished") if k in data}
    exception = data.get("exception")
    notes = {} if exception is None else {N_EXCEPTION: exception}
    return RunFact(id=data["id"], command=tuple(data["command"]), notes=notes, **more)


def _hypothesis(data: Mapping[str, Any]) -> CausalHypothesis:
    return CausalHypothesis(
        cause=data["cause"],
        confidence=data["confidence"],
        where=tuple(data["where"]),
        first_step=data["first_step"],
        summary=data["summary"],
        chain=tuple(Link(link["text"], link["event"]) for link in data["chain"]),
        evidence=tuple(_evidence(e) for e in data["evidence"]),
        against=tuple(_evidence(e) for e in data["against"]),
        repair=data["repair"],
        experiment=data["experiment"],
    )


def _evidence(data: Mapping[str, Any]) -> Evidence:
    return Evidence(
        text=data["text"],
        weight=_number(data["weight"]),
        where=data.get("where"),
        step=data.get("step"),
        values=_numbers(data.get("values", {})),
    )


def _event(data: Mapping[str, Any]) -> SemanticEvent:
    return SemanticEvent(
        id=data["id"],
        kind=EventType(data["kind"]),
        where=data["where"],
        step=data["step"],
        before=data["from"],
        after=data["to"],
        confidence=data["confidence"],
        metadata=_numbers(data["metadata"]),
    )


def _coupling(data: Mapping[str, Any]) -> Coupling:
    agreement = _number(data["agreement"])
    return Coupling(data["source"], data["target"], data["mechanism"], agreement, data["text"])


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: Any) -> Any:  # noqa: ANN401 - as read from JSON
    return _NONFINITE.get(value, value) if isinstance(value, str) else value
