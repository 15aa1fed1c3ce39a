"""What watching costs beside time per step: compiling, memory, many modules, closing, waiting.

    python bench/mechanics.py [compile|memory|modules|growth|waits ...] [--backend inductor]

Each measurement runs in a process of its own and prints one line a case.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = (10, 100, 1_000, 10_000)
LONG, EVERY = 20_000, 4_000


@contextlib.contextmanager
def watched(model: Any, optimizer: Any, budget: float, *, on: bool = True) -> Iterator[Any]:
    """A monitor, or none."""
    from neuraldbg import NeuralDbg

    if not on:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        dbg = NeuralDbg(model, optimizer, budget=budget, out=Path(folder) / "run.ndbg").attach()
        try:
            yield dbg
        finally:
            dbg.close()


def chain(modules: int, width: int = 8) -> Any:
    """As many linear layers one after the other."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(modules)))


def step(call: Any, optimizer: Any, batch: Any) -> None:
    """One step of training."""
    optimizer.zero_grad()
    call(batch).square().mean().backward()
    optimizer.step()


def sgd(model: Any) -> Any:
    """The cheapest optimizer."""
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def measure_compile(backend: str) -> None:
    """Seconds of the first steps, with empty caches of compiled graphs, then with filled ones."""
    for name, how in itertools.product(("mlp", "gpt"), ("alone", "watched")):
        words = [sys.executable, __file__, f"first-{name}-{how}", "--backend", backend]
        with tempfile.TemporaryDirectory() as cache:
            told = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
            for state in ("empty", "filled"):
                spent = float(
                    subprocess.run(words, check=True, capture_output=True, env=told).stdout
                )
                print(f"compile {name} {backend} {how:<8} caches {state:<7} {spent:6.2f} s")


def measure_first(name: str, backend: str) -> None:
    """One of the processes of `measure_compile`: both graphs of a watched model are compiled."""
    from workloads import build

    which, how = name.split("-")
    work = build(which, backend)
    with watched(work.model, work.optimizer, 0.0, on=how == "watched") as dbg:
        if dbg is not None:
            schedule = dbg._watch.schedule
            schedule.next_step = lambda: schedule.looks < 2
        start = time.perf_counter()
        for _ in range(4):
            work.step()
        print(time.perf_counter() - start)


def measure_memory(backend: str) -> None:
    """Highest resident memory of the process, alone and watched."""
    for name in ("alone", "watched"):
        words = [sys.executable, __file__, f"peak-{name}", "--backend", backend]
        print(subprocess.run(words, check=True, capture_output=True, text=True).stdout, end="")


def measure_peak(name: str, backend: str) -> None:
    """One of the two of `measure_memory`."""
    model = chain(12, 512)
    optimizer = sgd(model)
    call = model if backend == "eager" else torch.compile(model, backend=backend)
    with watched(model, optimizer, float("inf"), on=name == "watched"):
        for _ in range(30):
            step(call, optimizer, torch.ones(256, 512))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {backend} {name:<8} {peak:7.1f} MiB")


def held(size: int) -> tuple[float, float]:
    """KiB of Python objects and arrays for each module: once attached, and after three looks."""
    model = chain(size)
    optimizer = sgd(model)
    step(model, optimizer, torch.ones(4, 8))
    found = []
    gc.collect()
    tracemalloc.start()
    with watched(model, optimizer, float("inf")):
        for looks in (0, 3):
            for _ in range(looks):
                step(model, optimizer, torch.ones(4, 8))
            gc.collect()
            found.append(tracemalloc.get_traced_memory()[0] / size / 1024)
    tracemalloc.stop()
    return found[0], found[1]


def measure_modules(backend: str) -> None:
    """Cost of attaching, of a look and of closing, and memory, against the number of modules."""
    for size in (SIZES[0], *SIZES):  # the first one pays for imports
        attached_kib, looked_kib = held(size)
        model = chain(size)
        optimizer = sgd(model)
        batch = torch.ones(4, 8)
        step(model, optimizer, batch)
        start = time.perf_counter()
        with watched(model, optimizer, float("inf")) as dbg:
            attached = time.perf_counter() - start
            times = []
            for _ in range(3):
                began = time.perf_counter()
                step(model, optimizer, batch)
                times.append(time.perf_counter() - began)
            start = time.perf_counter()
            dbg.close()
            closed = time.perf_counter() - start
        began = time.perf_counter()
        step(model, optimizer, batch)
        alone = time.perf_counter() - began
        look = (min(times[1:]) - alone) / size
        print(
            f"{size:>6} modules: {attached_kib:5.2f} KiB each, {looked_kib:5.2f} after looks, and "
            f"{look * 1e6:6.1f} us a look; attach {attached:6.3f} s, close {closed:6.3f} s"
        )


def measure_growth(backend: str) -> None:
    """Python's memory over many steps."""
    model = chain(10)
    optimizer = sgd(model)
    batch = torch.ones(4, 8)
    with watched(model, optimizer, 0.02):
        for i in range(LONG + 1):
            if i == EVERY:
                tracemalloc.start()
                gc.collect()
                first = tracemalloc.get_traced_memory()[0]
            step(model, optimizer, batch)
            if i > EVERY and i % EVERY == 0:
                gc.collect()
                more = (tracemalloc.get_traced_memory()[0] - first) / 1024
                rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(f"after {i:>6} steps: {more:+8.1f} KiB of objects, peak {rss:7.1f} MiB")


class Reads(TorchDispatchMode):
    """Counts tensors that are turned into Python numbers; on a device each of them waits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += str(func) == "aten._local_scalar_dense.default"
        return func(*args, **(kwargs or {}))


def measure_waits(backend: str) -> None:
    """Tensors read by the host on steps that are not due; the loss on the CPU is free to read."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for on in (False, True):
        model = chain(10).to(device)
        optimizer = sgd(model)
        batch = torch.ones(4, 8, device=device)
        with watched(model, optimizer, 0.0, on=on) as dbg:
            steps, reads = 0, Reads()
            for _ in range(400):
                due = on and dbg._watch.due
                with contextlib.nullcontext() if due else reads:
                    step(model, optimizer, batch)
                steps += not due
        name = "watched" if on else "alone"
        print(
            f"reads on {device} {name:<8} {reads.count / steps:.3f} a step, {steps} steps not due"
        )


MEASURES = {
    "compile": measure_compile,
    "memory": measure_memory,
    "modules": measure_modules,
    "growth": measure_growth,
    "waits": measure_waits,
}


def main() -> None:
    """Run the measurements that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--backend", default="inductor")
    options = parser.parse_args()
    for what in options.what or MEASURES:
        if what.startswith("peak-"):
            measure_peak(what.removeprefix("peak-"), options.backend)
        elif what.startswith("first-"):
            measure_first(what.removeprefix("first-"), options.backend)
        elif options.what == [what]:
            MEASURES[what](options.backend)
        else:
            words = [sys.executable, __file__, what, "--backend", options.backend]
            subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
