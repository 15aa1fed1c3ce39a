"""How long `neuraldbg report` and `explain` take for a large run, and how large the page is.

    python bench/report.py [--modules 1000] [--steps 100000] [--looks 400]

The run is made up: every step has a loss and a learning rate, every look eight numbers of
each module. Prints the seconds of reading and of diagnosing, and of both
commands as a whole with their peak memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.engine import diagnose
from neuraldbg.core.facts import (
    Channel,
    Kind,
    LossFact,
    ModuleFact,
    OptimizerFact,
    ParamFact,
    RunFact,
)
from neuraldbg.store.reader import RunFile
from neuraldbg.store.writer import RunWriter

MODULE = {
    m.ACT_RMS: 1.0,
    m.ACT_ABSMAX: 3.0,
    m.ACT_NEGATIVE_UNITS: 0.1,
    m.ACT_FLAT: 0.01,
    m.GRAD_RMS: 0.01,
}
PARAM = {m.P_GRAD: 0.1, m.P_RATIO: 0.001, m.P_WEIGHT: 4.0}


def write(path: Path, modules: int, steps: int, looks: int) -> None:
    """A healthy run of so many modules and steps."""
    names = [f"blocks.{i // 10}.layer{i % 10}" for i in range(modules)]
    run = RunFact("large", ("train.py",), steps=steps, finished="ok")
    writer = RunWriter(path, run, max_bytes=10**9)
    writer.modules(
        [ModuleFact(n, "Linear", order=i, training=True, calls=1) for i, n in enumerate(names)]
    )
    writer.params([ParamFact(f"{n}.weight", (64, 64), optimizer=0) for n in names])
    writer.optimizers([OptimizerFact(0, "SGD", ({"lr": 0.1},), modules, steps=steps)])
    writer.losses([LossFact(kind="cross_entropy", reduction="mean")])
    sites = [Channel(Kind.MODULE, n, k) for n in names for k in MODULE]
    sites += [Channel(Kind.PARAM, f"{n}.weight", k) for n in names for k in PARAM]
    writer.channels(m.LOOK, sites)
    loss = Channel(Kind.LOSS, "loss", m.L_VALUE)
    writer.channels(m.STEP, [loss, Channel(Kind.OPTIMIZER, "0.0", m.O_LR)])
    usual = np.array(list(MODULE.values()) * modules + list(PARAM.values()) * modules)
    random = np.random.default_rng(0)
    stride = max(steps // looks, 1)
    for step in range(steps):
        noise = 0.05 * random.standard_normal()
        writer.frame(m.STEP, step, np.array([2.3 * np.exp(-3 * step / steps) + noise**2, 0.1]))
        if step % stride == 0:
            writer.frame(m.LOOK, step, usual * np.exp(0.1 * random.standard_normal(len(usual))))
            writer.flush()
    writer.close(120)


def measure(path: Path, page: Path) -> None:
    """Print the seconds of each part."""
    begun = time.perf_counter()
    with RunFile(path) as file:
        record, events = file.record(), file.events()
    read = time.perf_counter()
    diagnose(record, events)
    diagnosed = time.perf_counter()
    report = command("report", str(path), "-o", str(page))
    print(f"run file {path.stat().st_size / 1e6:.1f} MB, page {page.stat().st_size / 1e3:.0f} kB")
    print(f"reading {read - begun:.1f} s, diagnosing {diagnosed - read:.1f} s")
    print(f"neuraldbg report: {report}")
    print(f"neuraldbg explain --json: {command('explain', str(path), '--json')}")


def command(*words: str) -> str:
    """Seconds and peak memory of a command, start and imports included."""
    begun = time.perf_counter()
    program = [sys.executable, "-m", "neuraldbg", *words]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"neuraldbg {words[0]} ended with {process.returncode}")
    seconds = time.perf_counter() - begun
    return f"{seconds:.1f} s, {used.ru_maxrss / 1e3:.0f} MB"


def main() -> None:
    """Make the run, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--looks", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.ndbg"
        print(f"{options.modules} modules, {options.steps} steps, {options.looks} looks")
        write(path, options.modules, options.steps, options.looks)
        measure(path, Path(folder) / "large.html")


if __name__ == "__main__":
    main()
