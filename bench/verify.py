"""Run and verify every case of a folder, and count what the experiments conclude.

    python bench/verify.py CASES [--budget SECONDS] [--seeds N] [--only ID ...] [--json OUT]

A case is a folder with `train.py` and `case.json` (`id`, `cause`, `also_ok`). Each is run
once under `neuraldbg run`, then `neuraldbg verify --all-plausible --yes`. What counts:

    confirmed   of the cases whose cause an intervention tests: the true cause confirmed
    misled      of those: a wrong cause confirmed and the true one refuted
    top1        of all cases with a cause: the first hypothesis is right, before and after
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from neuraldbg.experiments.interventions import interventions_for


def command(words: list[str], case: Path, runs: Path) -> subprocess.CompletedProcess[str]:
    """One verb of NeuralDBG in the folder of the case."""
    env = dict(os.environ, NEURALDBG_DIR=str(runs))
    return subprocess.run(
        [sys.executable, "-m", "neuraldbg", *words],
        cwd=case, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


def measure(case: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run and verify one case."""
    meta = json.loads((case / "case.json").read_text())
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        before = Path(folder) / "before.json"
        command(["run", "--quiet", "--json", str(before), "train.py"], case, runs)
        budget = ["--budget", str(options.budget), "--seeds", str(options.seeds)]
        every = [] if options.leading else ["--all-plausible"]
        ended = command(["verify", "last", "--json", "--yes", *every, *budget], case, runs)
        try:
            after = json.loads(ended.stdout)["hypotheses"]
        except ValueError:
            return {"id": meta["id"], "broken": ended.stderr[-2000:]}
        first = json.loads(before.read_text())["hypotheses"]
    return judge(meta, first, after, ended.stderr) | {"seconds": time.monotonic() - begun}


def judge(meta: dict[str, Any], before: list[Any], after: list[Any], said: str) -> dict[str, Any]:
    """What the experiments said about the true cause and about others."""
    right = {meta["cause"], *meta["also_ok"]}
    results = {h["cause"]: h["experiment"]["result"] for h in after if h["experiment"]}
    true = [r for c, r in results.items() if c in right]
    return {
        "id": meta["id"],
        "cause": meta["cause"],
        "testable": any(interventions_for(c) for c in right),
        "before": before[0]["cause"] if before else None,
        "after": after[0]["cause"] if after else None,
        "top1_before": bool(before) and before[0]["cause"] in right,
        "top1_after": bool(after) and after[0]["cause"] in right,
        "confirmed": "confirmed" in true,
        "misled": "refuted" in true and "confirmed" not in true
        and any(r == "confirmed" for c, r in results.items() if c not in right),
        "results": results,
        "texts": {h["cause"]: h["experiment"]["text"] for h in after if h["experiment"]},
        "said": said[-3000:],
    }  # fmt: skip


def main() -> None:
    """Measure, print a line for each case, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="?")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--leading", action="store_true", help="test the leading causes only")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.cases is None:
        print("no folder of cases was named, so nothing was measured")
        return
    found: list[dict[str, Any]] = []
    for path in sorted(options.cases.rglob("case.json")):
        meta = json.loads(path.read_text())
        if meta["cause"] == "none" or (options.only and meta["id"] not in options.only):
            continue
        row = measure(path.parent, options)
        found.append(row)
        keys = ("cause", "after", "top1_before", "top1_after", "confirmed", "misled", "results")
        print(row["id"], row.get("broken") or {k: row[k] for k in keys}, flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    sound = [r for r in found if "broken" not in r]
    testable = [r for r in sound if r["testable"]]
    for name, rows in (("confirmed", testable), ("misled", testable),
                       ("top1_before", sound), ("top1_after", sound)):  # fmt: skip
        count = sum(r[name] for r in rows)
        print(f"{name:12} {count}/{len(rows)} = {count / max(len(rows), 1):.2f}")
    print(f"broken       {len(found) - len(sound)}")


if __name__ == "__main__":
    main()
