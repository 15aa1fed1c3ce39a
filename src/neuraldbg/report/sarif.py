"""The hypotheses as SARIF 2.1.0, for tools that show findings beside the code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

from neuraldbg.core.causes import Cause, all_causes
from neuraldbg.core.diagnosis import CausalHypothesis, Diagnosis
from neuraldbg.report import words
from neuraldbg.report.json import encode
from neuraldbg.report.names import plain

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

Locate = Callable[[Sequence[str]], tuple[str, int] | None]


def dumps(diagnosis: Diagnosis, locate: Locate = lambda _: None) -> str:
    """The log as text.

    Args:
        diagnosis: What was concluded.
        locate: From modules to a file (relative, with `/`) and a line, if that is known.
    """
    return encode(log(diagnosis, locate)) + "\n"


def log(diagnosis: Diagnosis, locate: Locate = lambda _: None) -> dict[str, Any]:
    """The log as plain data."""
    known = all_causes()
    ids = list(dict.fromkeys(h.cause for h in diagnosis.hypotheses))
    driver = {
        "name": "NeuralDBG",
        "version": diagnosis.facts.run.neuraldbg or "0",
        "rules": [_rule(name, known.get(name)) for name in ids],
    }
    results = [_result(diagnosis, h, ids.index(h.cause), locate) for h in diagnosis.hypotheses]
    finished = {"executionSuccessful": diagnosis.facts.run.finished == "ok"}
    run = {
        "tool": {"driver": driver},
        "invocations": [finished],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str, cause: Cause | None) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": plain(name)}
    if cause is None:
        return rule
    chain = " -> ".join(cause.chain)
    help_text = " ".join(filter(None, [f"{chain}." if chain else "", cause.repair]))
    return {
        **rule,
        "shortDescription": {"text": cause.title},
        "fullDescription": {"text": cause.title},
        "help": {"text": help_text},
        "properties": {"tags": [cause.family]},
    }


def _result(
    diagnosis: Diagnosis, found: CausalHypothesis, index: int, locate: Locate
) -> dict[str, Any]:
    message = " ".join(filter(None, [words.cause(found), plain(found.repair)]))
    place: dict[str, Any] = {"logicalLocations": [_logical(name) for name in found.where]}
    at = locate(found.where)
    if at is not None:
        artifact = {"uri": quote(at[0]), "uriBaseId": "%SRCROOT%"}
        place["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": at[1]}}
    return {
        "ruleId": plain(found.cause),
        "ruleIndex": index,
        "level": _level(diagnosis.verdict, found.confidence),
        "message": {"text": message},
        "locations": [place] if at is not None or found.where else [],
        "partialFingerprints": {"causeAndPlace/v1": _fingerprint(found)},
        "properties": {
            "confidence": found.confidence,
            "firstStep": found.first_step,
            "evidence": [words.evidence(e) for e in found.evidence],
            "against": [words.evidence(e) for e in found.against],
            "chain": [plain(link.text) for link in found.chain],
        },
    }


def _logical(name: str) -> dict[str, str]:
    return {"fullyQualifiedName": plain(name) or "model", "kind": "module"}


def _level(verdict: str, confidence: float) -> str:
    """A rival is a note; what is likely is as bad as the verdict says."""
    if confidence < words.LIKELY:
        return "note"
    return "error" if verdict == "failed" else "warning"


def _fingerprint(found: CausalHypothesis) -> str:
    """Equal for the same cause at the same place, in whatever run."""
    said = "\n".join([found.cause, *found.where[:1]])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]
