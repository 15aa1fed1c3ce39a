"""The demos, healthy and with each fault, on each backend: verdict and first cause.

    python bench/demos.py [--demo char_gpt digits_cnn] [--backend eager aot_eager inductor]
                          [--fault NAME ...] [--json FILE]

A row agrees when all backends give the same verdict and the same first cause, and the cause
is the fault that was switched in (none for the healthy run). Exit status 1 if a row does not.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEMOS = Path(__file__).parent.parent / "src" / "neuraldbg" / "demos"
BACKENDS = ("eager", "aot_eager", "inductor")


def faults(demo: str) -> list[str]:
    """The faults that a demo can switch in, `none` first."""
    for node in ast.parse((DEMOS / f"{demo}.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FAULTS":
            return list(ast.literal_eval(node.value))
    message = f"{demo} has no FAULTS"
    raise SystemExit(message)


def diagnose(demo: str, fault: str, backend: str) -> tuple[str, str | None, float]:
    """Run a demo under NeuralDBG; its verdict, first cause and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "d.json"
        command = [sys.executable, "-m", "neuraldbg", "run", "--json", str(out), "--quiet"]
        command += [str(DEMOS / f"{demo}.py"), "--fault", fault, "--backend", backend]
        start = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False,
            env={**os.environ, "NEURALDBG_DIR": folder},
        )  # fmt: skip
        seconds = time.perf_counter() - start
        if not out.exists():
            message = f"{demo} --fault {fault} on {backend} wrote no diagnosis:\n{done.stderr}"
            raise SystemExit(message)
        found = json.loads(out.read_text())
    first = found["hypotheses"][0]["cause"] if found["hypotheses"] else None
    return found["verdict"], first, seconds


def row(demo: str, fault: str, backends: list[str]) -> dict:
    """One fault on all backends."""
    cells = {b: diagnose(demo, fault, b) for b in backends}
    answers = {cell[:2] for cell in cells.values()}
    wanted = None if fault == "none" else fault
    agrees = len(answers) == 1 and next(iter(answers))[1] == wanted
    return {"demo": demo, "fault": fault, "agrees": agrees, "cells": cells}


def main() -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", nargs="+", default=["char_gpt", "digits_cnn"])
    parser.add_argument("--backend", nargs="+", default=list(BACKENDS))
    parser.add_argument("--fault", nargs="+")
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    rows = []
    for demo in o.demo:
        for fault in o.fault or faults(demo):
            found = row(demo, fault, o.backend)
            rows.append(found)
            cells = "  ".join(
                f"{b}: {v} {c or '-'} ({s:.0f} s)" for b, (v, c, s) in found["cells"].items()
            )
            print(
                f"{'ok  ' if found['agrees'] else 'DIFF'} {demo:11} {fault:27} {cells}", flush=True
            )
    if o.json:
        o.json.write_text(json.dumps(rows, indent=1))
    print(f"{sum(r['agrees'] for r in rows)} of {len(rows)} rows agree")
    return 0 if all(r["agrees"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
