"""What watching costs: step times of several ways of watching, side by side.

    python bench/overhead.py [--model gpt mlp ...] [--backend inductor eager]
                             [--variants none default ...] [--rounds 30] [--steps 10]
                             [--warm-up 60] [--processes 3] [--threads 1] [--json FILE]
                             [--peers DIR]

Each variant lives in processes of its own; the processes take turns of a few steps, so that all
see the same state of the machine, and only one computes at a time. Two processes of one variant
can differ by a quarter all their lives (where their memory lies decides), hence several of each.
Reported is the ratio of a variant's median step time to the unwatched one's in the same round:
the median over the rounds, and the range that holds the middle half of them; then the ratio of
all steps together, the time of the first step (which compiles), the highest resident memory of
a process, and how long the end of watching took. A variant that dies is told as such, and the
others go on. Other tools (`bench/peers.py`) run in the environments that `--peers` names.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from peers import PEERS, python_of


def worker(model: str, backend: str, variant: str, threads: int) -> None:
    """Serve turns: read a number of steps from standard input, answer with their times."""
    import logging
    import warnings

    import torch
    from variants import VARIANTS
    from workloads import build

    warnings.simplefilter("ignore")
    torch._logging.set_logs(dynamo=logging.CRITICAL)
    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a tool prints is no answer

    def answer(value: object) -> None:
        print(json.dumps(value), file=answers, flush=True)

    work = build(model, backend)
    with (VARIANTS | PEERS)[variant](work):
        started = time.perf_counter()
        work.step()
        answer({"first": time.perf_counter() - started})
        for line in sys.stdin:
            times = []
            for _ in range(int(line)):
                start = time.perf_counter()
                work.step()
                times.append(time.perf_counter() - start)
            answer({"times": times})
        started = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answer({"close": time.perf_counter() - started, "peak": peak})


class DiedError(Exception):
    """A worker has ended before it was asked to; its error has been printed."""


class Turn:
    """A worker process that computes only when it is asked to."""

    def __init__(self, model: str, backend: str, variant: str, o: argparse.Namespace) -> None:
        words = ["--worker", variant, "--model", model, "--backend", backend]
        python = python_of(o.peers, variant) if variant in PEERS else sys.executable
        self._process = subprocess.Popen(
            [python, __file__, *words, "--threads", str(o.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.first = self._read()["first"]

    def _read(self) -> dict:
        line = self._answers.readline()
        if not line:
            raise DiedError
        return json.loads(line)

    def steps(self, count: int) -> list[float]:
        """Run some steps; their times in seconds."""
        try:
            self._requests.write(f"{count}\n")
            self._requests.flush()
        except BrokenPipeError as error:
            raise DiedError from error
        return self._read()["times"]

    def close(self) -> dict:
        """End the process; seconds that closing took, and its highest memory in MiB."""
        self._requests.close()
        told = self._read()
        self._process.wait(60)
        return told


def measure(model: str, backend: str, o: argparse.Namespace) -> dict:
    """Ratios of step times against the variant `none`."""
    names = ["none", *(v for v in o.variants if v != "none")]
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for name in names * o.processes:
        if name not in turns:
            continue
        try:
            turns[name].append(Turn(model, backend, name, o))
            turns[name][-1].steps(o.warm_up)
        except DiedError:
            print(f"{name:16} does not run here; its error is above", flush=True)
            del turns[name]
    all_times = {name: [] for name in turns}
    ratios = {name: [] for name in turns}
    for _ in range(o.rounds):
        times = {
            name: [t for turn in several for t in turn.steps(o.steps)]
            for name, several in turns.items()
        }
        base = statistics.median(times["none"])
        for name, values in times.items():
            all_times[name] += values
            ratios[name].append(statistics.median(values) / base)
    return {
        name: _summary(ratios[name], all_times[name], all_times["none"])
        | {"first_step_s": round(statistics.median(t.first for t in several), 1)}
        | _ends([turn.close() for turn in several])
        for name, several in turns.items()
    }


def _ends(told: list[dict]) -> dict:
    """Median time to close and highest memory over the processes of a variant."""
    return {key: round(statistics.median(x[key] for x in told), 3) for key in told[0]}


def _summary(ratios: list[float], times: list[float], base: list[float]) -> dict:
    quarters = statistics.quantiles(ratios, n=4)
    return {
        "median_ratio": round(statistics.median(ratios), 3),
        "middle_half": [round(quarters[0], 3), round(quarters[2], 3)],
        "total_ratio": round(sum(times) / sum(base), 3),
        "median_ms": round(1000 * statistics.median(times), 3),
    }


def _print(model: str, backend: str, found: dict) -> None:
    titles = ("median", "middle half", "total", "ms", "first step", "peak", "close")
    print(
        f"{model + ', ' + backend:16}",
        "{:>8} {:>16} {:>8} {:>9} {:>11} {:>9} {:>7}".format(*titles),
    )
    for name, row in found.items():
        low, high = row["middle_half"]
        print(
            f"{name:16} {row['median_ratio']:7.3f}x {low:7.3f}-{high:7.3f}x "
            f"{row['total_ratio']:7.3f}x {row['median_ms']:9.2f} {row['first_step_s']:9.1f} s "
            f"{row['peak']:5.0f} MiB {row['close']:5.2f} s",
            flush=True,
        )


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", nargs="+", default=["gpt"], choices=("mlp", "cnn", "gpt", "lstm")
    )
    parser.add_argument("--backend", nargs="+", default=["inductor"])
    parser.add_argument("--variants", nargs="+", default=["none", "default", "dense", "naive"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=60)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="environments of other tools")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.peers is None and (asked := sorted(PEERS.keys() & set(o.variants))):
        parser.error(f"{', '.join(asked)}: name the environments (bench/peers.py) with --peers DIR")
    if o.worker:
        worker(o.model[0], o.backend[0], o.worker, o.threads)
        return
    machine = {
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "threads": o.threads,
        "python": sys.version,
    }
    results = []
    for model, backend in itertools.product(o.model, o.backend):
        found = measure(model, backend, o)
        _print(model, backend, found)
        results.append({"model": model, "backend": backend, "variants": found})
    if o.json:
        o.json.write_text(json.dumps({**machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
