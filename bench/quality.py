"""Programs x faults x strengths x seeds under watch: does the first hypothesis name the fault?

    python bench/quality.py [--programs NAME ...] [--operators NAME ...] [--seeds 0 ...]
                            [--limit N] [--jobs N] [--keep DIR]
    python bench/quality.py --rescore DIR

Each mutant of a healthy program has one thing changed, and that change is its label. It
counts only if the program's own criterion then fails. Healthy programs and their odd-looking
but sound variations must stay without a diagnosis.

With `--keep`, run files and `results.jsonl` stay in DIR, and what is there already is not
run again. `--rescore` diagnoses the kept run files with the present engine, without training.
`--operators` also takes the ids of causes, `base`, and `variation`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.run import diagnose_file
from neuraldbg.testing.score import Row, Score, matrix, summary, table

if TYPE_CHECKING:
    from neuraldbg.testing.faults import Fault
    from neuraldbg.testing.plan import Plan
    from neuraldbg.testing.trial import Trial

RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Job:
    """One run to be made; what it holds can be sent to another process."""

    kind: str
    program: str
    operator: str
    strength: float | str
    seed: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells runs apart."""
        return self.program, self.operator, str(self.strength), self.seed


def jobs(
    programs: list[str] | None, operators: list[str] | None, seeds: list[int]
) -> Iterator[Job]:
    """Every run that the options ask for."""
    from neuraldbg.testing.faults import all_faults
    from neuraldbg.testing.programs import all_programs
    from neuraldbg.testing.variations import variations_of

    def wanted(*names: str) -> bool:
        return not operators or any(n in operators for n in names)

    known = all_programs()
    for seed in seeds:
        for name in programs or known:
            plan = known[name]
            if wanted("base"):
                yield Job("base", name, "none", "plain", seed)
            for varied, _ in variations_of(plan):
                if wanted("variation", varied):
                    yield Job("variation", name, varied, "plain", seed)
            for fault in all_faults().values():
                if wanted(fault.name, fault.cause):
                    for strength in fault.strengths:
                        if fault.into(plan, strength) is not None:
                            yield Job("fault", name, fault.name, strength, seed)


def plan_of(job: Job) -> tuple[Plan, Fault | None]:
    """What to run, and the fault in it."""
    from neuraldbg.testing.faults import all_faults
    from neuraldbg.testing.programs import all_programs
    from neuraldbg.testing.variations import all_variations

    plan = all_programs()[job.program]
    if job.kind == "base":
        return plan, None
    fault = all_faults()[job.operator] if job.kind == "fault" else None
    changed = fault.into(plan, job.strength) if fault else all_variations()[job.operator](plan)
    assert changed is not None  # noqa: S101 - `jobs` has asked
    return changed, fault


def carry_out(job: Job, folder: Path, *, keep: bool, hurting: bool) -> Row:
    """Run a job under watch; only if it fails, where only `hurting` faults are wanted."""
    import torch

    from neuraldbg.testing.faults import fails
    from neuraldbg.testing.trial import unwatched, watch

    torch.set_num_threads(1)
    plan, fault = plan_of(job)
    shows = fault.shows if fault else fails
    start = time.perf_counter()
    if hurting and fault:
        trial = unwatched(plan, job.seed, shows)
        if not trial.suffered:
            return row(job, trial, fault, time.perf_counter() - start)
    out = folder / ("-".join(map(str, job.key)) + ".ndbg")
    out.unlink(missing_ok=True)
    trial = watch(plan, job.seed, out, shows)
    found = row(job, trial, fault, time.perf_counter() - start)
    if keep:
        return replace(found, run=out.name if out.exists() else None)
    out.unlink(missing_ok=True)
    return found


def row(job: Job, trial: Trial, fault: Fault | None, seconds: float) -> Row:
    """What became of a job."""
    bare = Row(
        kind=job.kind,
        program=job.program,
        operator=job.operator,
        strength=job.strength,
        seed=job.seed,
        cause=fault.cause if fault else None,
        accepts=(fault.cause, *fault.also) if fault else (),
        suffered=trial.suffered,
        metric=None if math.isnan(trial.metric) else round(trial.metric, 4),
        error=trial.error,
        verdict="unseen",
        hypotheses=(),
        seconds=round(seconds, 2),
    )
    return told(bare, trial.diagnosis)


def told(row: Row, diagnosis: Diagnosis | None) -> Row:
    """A row with what a diagnosis says."""
    if diagnosis is None:
        return row
    said = tuple((h.cause, round(h.confidence, 3)) for h in diagnosis.hypotheses)
    return replace(row, verdict=diagnosis.verdict, hypotheses=said)


def rescored(row: Row, folder: Path) -> Row:
    """A row with what the present engine says about its run file."""
    return row if row.run is None else told(row, diagnose_file(folder / row.run))


def read(path: Path) -> list[Row]:
    """The rows of a results file; none if there is no file."""
    if not path.exists():
        return []
    out = []
    for line in path.read_text().splitlines():
        found = json.loads(line)
        said = tuple((c, p) for c, p in found.pop("hypotheses"))
        out.append(Row(**{**found, "accepts": tuple(found["accepts"])}, hypotheses=said))
    return out


def line(row: Row) -> str:
    """A row for people."""
    mark = "right" if row.right() else "third" if row.right(3) else "MISS"
    if row.kind != "fault":
        mark = "ALARM" if row.hypotheses else "quiet"
    if not row.counted:
        mark = "harmless" if row.kind == "fault" else "unsound"
    said = " ".join(f"{c} {p:.2f}" for c, p in row.hypotheses[:3]) or row.verdict
    name = f"{row.operator} {row.strength}" if row.kind == "fault" else row.operator
    return f"{mark:8} {row.program:20} {row.cause or '-':27} {name:36} {row.seed}  {said}"


def spread(work: Iterable[Job], options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Carry out the work, in this process or in several."""
    keep = options.keep is not None
    run = partial(carry_out, folder=folder, keep=keep, hurting=options.hurting)
    if options.jobs == 1:
        yield from map(run, work)
        return
    # A fresh interpreter each: torch does not survive a fork.
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        yield from pool.imap_unordered(run, work)


def train(options: argparse.Namespace) -> list[Row]:
    """Make the runs that are not there yet; all rows, those from before too."""
    folder = options.keep or Path(tempfile.mkdtemp(prefix="quality-"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = read(folder / RESULTS)
    done = {r.key for r in rows}
    work = [
        j for j in jobs(options.programs, options.operators, options.seeds) if j.key not in done
    ]
    # In a fixed random order, so that a run that is cut short has seen something of all.
    random.Random(0).shuffle(work)  # noqa: S311
    work = work[: options.limit]
    with (folder / RESULTS).open("a") as file:
        for row in spread(work, options, folder):
            rows.append(row)
            print(json.dumps(asdict(row)), file=file, flush=True)
            print(line(row), flush=True)
    return rows


def again(options: argparse.Namespace) -> list[Row]:
    """The rows of a folder, diagnosed anew."""
    rows = read(options.rescore / RESULTS)
    ask = partial(rescored, folder=options.rescore)
    if options.jobs == 1:
        return list(map(ask, rows))
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        return pool.map(ask, rows, chunksize=8)


def main() -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", nargs="+", metavar="NAME")
    parser.add_argument("--operators", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="at most so many runs, drawn at random"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--hurting", action="store_true", help="train mutants unwatched first, skip harmless ones"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep run files and results")
    parser.add_argument("--rescore", type=Path, metavar="DIR", help="diagnose kept runs again")
    parser.add_argument("--misses", action="store_true", help="with --rescore: list what is wrong")
    options = parser.parse_args()
    rows = again(options) if options.rescore else train(options)
    if options.misses:
        wrong = [r for r in rows if r.counted and (not r.right() if r.cause else r.hypotheses)]
        print("\n".join(line(r) for r in wrong), end="\n\n")
    score = Score(rows)
    print(table(score))
    print("\nwhat was said first, by true cause\n" + matrix(score))
    print("\n" + "\n".join(summary(score)[:3]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
