"""Fit the line from a cause's score to its confidence, on runs of the fault generator.

    python bench/calibrate.py DIR

DIR is what `bench/quality.py --keep DIR` left: run files, and one JSON object a line in
`results.jsonl` with the injected `cause`, the causes it `accepts`, whether the run `suffered`,
and the name of its `run` file. Every run that counts gives one example: the score of its first
hypothesis, and whether that cause is right (never, for a sound run).

Slope and offset are fitted by maximum likelihood, and judged on programs that were held out:
each program in turn is left out of the fit and then predicted. The figures that are in
`neuraldbg.core.infer` come from the fit on all.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from quality import RESULTS, read
from sklearn.linear_model import LogisticRegression

from neuraldbg.core.detect import extract
from neuraldbg.core.engine import merge
from neuraldbg.core.infer import OFFSET, SLOPE, weigh_all
from neuraldbg.core.view import View
from neuraldbg.store.reader import RunFile

BINS = 10
LEAST_SCORE = -6.0  # what a run without any cause that applies counts as


@dataclass(frozen=True)
class Example:
    """The first hypothesis of a run."""

    program: str
    score: float
    right: bool


def examples(folder: Path) -> list[Example]:
    """One example for every run that counts."""
    out = []
    for row in read(folder / RESULTS):
        if row.counted and row.run and (folder / row.run).exists():
            with RunFile(folder / row.run) as file:
                record, stored = file.record(), file.events()
            with np.errstate(all="ignore"):
                ranked = weigh_all(View(record, merge(extract(record), stored)), lambda *_: None)
            best = ranked[0] if ranked else None
            score = max(best.score, LEAST_SCORE) if best else LEAST_SCORE
            right = best is not None and best.cause.id in row.accepts
            out.append(Example(row.program, score, right))
    return out


def fit(given: list[Example]) -> tuple[float, float]:
    """Slope and offset of the log-odds that a first hypothesis is right."""
    scores = np.array([[e.score] for e in given])
    model = LogisticRegression(C=1e6).fit(scores, [e.right for e in given])
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def confidence(example: Example, line: tuple[float, float]) -> float:
    """The probability that a line gives to an example."""
    return float(1 / (1 + np.exp(-np.clip(line[0] * example.score + line[1], -50, 50))))


def error(claims: list[tuple[float, bool]]) -> float:
    """Expected distance between confidence and the share that is right, over ten bins."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for claim in claims:
        bins[min(int(claim[0] * BINS), BINS - 1)].append(claim)
    gaps = [abs(sum(c - r for c, r in b)) for b in bins.values()]
    return sum(gaps) / max(len(claims), 1)


def main() -> int:
    """Run as a script."""
    known = examples(Path(sys.argv[1]))
    held_out = []
    for program in sorted({e.program for e in known}):
        line = fit([e for e in known if e.program != program])
        own = [e for e in known if e.program == program]
        held_out += [(confidence(e, line), e.right) for e in own]
        print(f"without {program:20} slope {line[0]:.2f} offset {line[1]:+.2f}")
    whole, present = fit(known), (SLOPE, OFFSET)
    as_it_is = [(confidence(e, present), e.right) for e in known]
    print(f"all {len(known)} runs: slope {whole[0]:.2f} offset {whole[1]:+.2f}")
    print(f"calibration error, held out by program: {error(held_out):.3f}")
    print(f"calibration error as it is: {error(as_it_is):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
