"""How good diagnoses are, counted over many runs whose true cause is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

BINS = 10
TOP = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One run and what was said about it.

    Attributes:
        kind: `base`, `variation` or `fault`.
        program, operator, strength, seed: What was run.
        cause: The cause that was injected, or None.
        accepts: Every cause that counts as right.
        suffered: Whether the run failed by its own criterion.
        metric: The program's own, or None if it was not finite.
        error: What ended the program, if anything did.
        verdict: Of the diagnosis; `unseen` if there is none.
        hypotheses: Cause and confidence, the best first.
        run: Path of the run file, if it was kept.
        seconds: That the run took.
    """

    kind: str
    program: str
    operator: str
    strength: float | str
    seed: int
    cause: str | None
    accepts: tuple[str, ...]
    suffered: bool
    metric: float | None
    error: str | None
    verdict: str
    hypotheses: tuple[tuple[str, float], ...]
    run: str | None = None
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells runs apart."""
        return self.program, self.operator, str(self.strength), self.seed

    @property
    def said(self) -> str | None:
        """The first cause that was named; None where nothing was found."""
        return self.hypotheses[0][0] if self.hypotheses else None

    def right(self, top: int = 1) -> bool:
        """Whether a cause that counts as right is among the first ones."""
        return any(cause in self.accepts for cause, _ in self.hypotheses[:top])

    @property
    def counted(self) -> bool:
        """Whether it belongs in the score: a fault that hurt a training, or a sound run."""
        return self.trained and self.suffered == (self.kind == "fault")

    @property
    def trained(self) -> bool:
        """Whether there was a training to be diagnosed."""
        return self.error is None or self.verdict != "unseen"


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part}/{self.whole}" + (
            f" = {self.part / self.whole:.3f}" if self.whole else ""
        )


class Score:
    """The figures over some rows.

    Args:
        rows: All runs; those that do not count are only listed.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.faults = [r for r in self.rows if r.kind == "fault" and r.counted]
        self.sound = [r for r in self.rows if r.kind != "fault" and r.counted]
        self.harmless = [r for r in self.rows if r.kind == "fault" and not r.suffered]
        self.unsound = [r for r in self.rows if r.kind != "fault" and r.suffered]
        self.untrained = [r for r in self.rows if not r.trained]

    def top(self, count: int) -> Share:
        """Faults whose cause is among the first hypotheses."""
        return Share(sum(r.right(count) for r in self.faults), len(self.faults))

    def alarms(self, kind: str) -> Share:
        """Sound runs of a kind about which something was said."""
        rows = [r for r in self.sound if r.kind == kind]
        return Share(sum(bool(r.hypotheses) for r in rows), len(rows))

    def by_cause(self) -> dict[str, list[Row]]:
        """The faults that count, by the cause that was injected."""
        out: dict[str, list[Row]] = defaultdict(list)
        for row in self.faults:
            out[row.cause or ""].append(row)
        return dict(sorted(out.items()))

    def confusion(self) -> dict[str, Counter[str]]:
        """What was said first, by the cause that was injected; `-` is silence."""
        return {c: Counter(r.said or "-" for r in rows) for c, rows in self.by_cause().items()}

    def claims(self) -> list[tuple[float, bool]]:
        """The confidence of each first hypothesis, and whether it was right."""
        rows = [*self.faults, *self.sound]
        return [(r.hypotheses[0][1], r.right()) for r in rows if r.hypotheses]

    def calibration(self) -> list[tuple[float, float, int]]:
        """Mean confidence, share that was right, and claims, by bin of confidence."""
        bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
        for claim in self.claims():
            bins[min(int(claim[0] * BINS), BINS - 1)].append(claim)
        return [
            (sum(c for c, _ in b) / len(b), sum(r for _, r in b) / len(b), len(b))
            for _, b in sorted(bins.items())
        ]

    def calibration_error(self) -> float:
        """Expected distance between confidence and the share that is right."""
        bins = self.calibration()
        total = sum(n for _, _, n in bins)
        return sum(n * abs(said - right) for said, right, n in bins) / total if total else 0.0

    def brier(self) -> float:
        """Mean square of the distance between confidence and truth, over all counted runs."""
        rows = [*self.faults, *self.sound]
        gaps = [(r.hypotheses[0][1] if r.hypotheses else 0.0) - r.right() for r in rows]
        return sum(g * g for g in gaps) / len(gaps) if gaps else 0.0


def table(score: Score) -> str:
    """The score as text, for people."""
    lines = [f"{'cause':28} {'runs':>5} {'top-1':>6} {'top-3':>6}   said instead"]
    for cause, rows in score.by_cause().items():
        wrong = Counter(r.said or "-" for r in rows if not r.right())
        told = ", ".join(f"{c} {n}" for c, n in wrong.most_common(4))
        first, three = sum(r.right() for r in rows), sum(r.right(TOP) for r in rows)
        lines.append(f"{cause:28} {len(rows):5} {first:6} {three:6}   {told}")
    lines += ["", "confidence  right  claims"]
    lines += [f"{said:10.2f} {right:6.2f} {n:7}" for said, right, n in score.calibration()]
    lines += ["", *summary(score)]
    return "\n".join(lines)


def summary(score: Score) -> list[str]:
    """The figures in a few lines."""
    seen = [r for r in score.harmless if r.verdict != "unseen"]
    loud = Share(sum(bool(r.hypotheses) for r in seen), len(seen))
    lines = [
        f"top-1 {score.top(1)}   top-3 {score.top(TOP)}",
        f"alarms on healthy programs {score.alarms('base')}, "
        f"on healthy variations {score.alarms('variation')}",
        f"expected calibration error {score.calibration_error():.3f}   Brier {score.brier():.3f}",
        f"left out: {len(score.harmless)} harmless mutants; something was said about {loud}",
    ]
    for what, rows in (
        ("healthy programs that missed their own mark", score.unsound),
        ("mutants that never trained", score.untrained),
    ):
        if rows:
            names = ", ".join(f"{r.program}/{r.operator}/{r.seed}" for r in rows)
            lines.append(f"left out: {what}: {names}")
    return lines


def matrix(score: Score) -> str:
    """The confusion table as text: one line a cause, what was said and how often."""
    lines = []
    for cause, said in score.confusion().items():
        told = "  ".join(f"{c}:{n}" for c, n in said.most_common())
        lines.append(f"{cause:28} {told}")
    return "\n".join(lines)
