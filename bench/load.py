"""Load: many steps, many modules, many runs at once, many models, many monitors.

    python bench/load.py steps modules runs models monitors

Prints one line for each figure of docs/reliability.md and exits with 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from neuraldbg.run import diagnose_file
from neuraldbg.store.locate import list_runs
from neuraldbg.store.reader import load_record
from neuraldbg.torch import boundaries, loop, taps
from neuraldbg.torch.monitor import NeuralDbg

MEGABYTE = 1_000_000
FILE_LIMIT = 100 * MEGABYTE
EXPLAIN_SECONDS = 5.0
# The allocator, torch's own caches and the writer's queue settle within this.
MEMORY_SLACK = 40 * MEGABYTE

broken: list[str] = []


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def figure(name: str, value: float, unit: str, limit: float | None = None) -> None:
    """Print a figure; note it if it is over its limit."""
    over = limit is not None and value > limit
    suffix = "" if limit is None else f" (limit {limit:,.6g}{', BROKEN' if over else ''})"
    print(f"{name}: {value:,.6g} {unit}{suffix}", flush=True)
    if over:
        broken.append(name)


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose steps cost next to nothing."""
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """A plain loop."""
    x, y = torch.randn(4, 2), torch.randn(4, 1)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


def steps(count: int) -> None:
    """A run of a million cheap steps."""
    path = Path(tempfile.mkdtemp()) / "r.ndbg"
    model, optimizer = small()
    start, peak = time.perf_counter(), 0
    with NeuralDbg(model, optimizer, out=path):
        train(model, optimizer, count // 10)
        early = memory()
        for _ in range(9):
            train(model, optimizer, count // 10)
            peak = max(peak, path.stat().st_size)
        late = memory()
    figure(f"{count:,} steps: time", time.perf_counter() - start, "s")
    figure("  memory, growth over the last nine tenths", late - early, "bytes", MEMORY_SLACK)
    figure("  run file, largest", max(peak, path.stat().st_size), "bytes", FILE_LIMIT)
    explain(path)


def explain(path: Path) -> None:
    """How long a diagnosis takes."""
    start = time.perf_counter()
    found = diagnose_file(path)
    figure("  explain", time.perf_counter() - start, "s", EXPLAIN_SECONDS)
    print(f"  verdict {found.verdict}, {found.facts.run.steps:,} steps, {len(found.gaps)} gaps")


class Deep(nn.Module):
    """Thousands of modules in a row, all of them called."""

    def __init__(self, count: int) -> None:
        """Make them."""
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Linear(4, 4) if i % 2 else nn.LayerNorm(4) for i in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call one after the other."""
        for part in self.parts:
            x = x + 0.01 * part(x)
        return x


def modules(count: int) -> None:
    """A model of ten thousand modules."""
    path = Path(tempfile.mkdtemp()) / "r.ndbg"
    model = Deep(count)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def some(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            optimizer.zero_grad()
            model(torch.randn(4, 4)).square().mean().backward()
            optimizer.step()
        return (time.perf_counter() - start) / number

    plain = some(3)
    start = time.perf_counter()
    with NeuralDbg(model, optimizer, out=path) as dbg:
        attached = time.perf_counter() - start
        dense = some(5)
        later = some(20)
    figure(f"{count:,} modules: attaching", attached, "s")
    figure("  a step unwatched", plain, "s")
    figure("  a step in the first five", dense, "s")
    figure("  a step afterwards", later, "s")
    figure("  run file", path.stat().st_size, "bytes", FILE_LIMIT)
    explain(path)
    print(f"  gaps: {[f'{g.what}: {g.why}' for g in dbg.gaps]}")


ONE = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
import torch
torch.set_num_threads(1)
m = torch.nn.Linear(2, 1)
o = torch.optim.SGD(m.parameters(), lr=1e-3)
for _ in range(2000):
    o.zero_grad(); m(torch.randn(4, 2)).square().mean().backward(); o.step()
"""


def runs(count: int) -> None:
    """Sixteen runs at once into one folder, with the same script at the same second."""
    folder = Path(tempfile.mkdtemp())
    (folder / "train.py").write_text(ONE)
    command = [sys.executable, "-m", "neuraldbg", "run", "--quiet", "train.py"]
    started = [subprocess.Popen(command, cwd=folder) for _ in range(count)]
    codes = [process.wait() for process in started]
    found = list_runs(folder / ".neuraldbg")
    whole = [r for r in found if r.error is None and r.finished == "ok" and r.steps == 2000]
    print(f"{count} runs at once: {len(whole)} whole run files, exit codes {sorted(set(codes))}")
    if len(whole) != count or any(codes):
        broken.append("runs at once")
    for run in whole:
        load_record(run.path)


def models(count: int) -> None:
    """A script that makes, trains and drops a thousand models under one watch."""
    from neuraldbg.torch import attach

    path = Path(tempfile.mkdtemp()) / "r.ndbg"
    session = attach.start(path, 0.02, strict=True, command=["train.py"])
    refs: list[weakref.ref[nn.Module]] = []
    early = 0
    start = time.perf_counter()
    for i in range(count):
        model, optimizer = small()
        train(model, optimizer, 3)
        refs.append(weakref.ref(model))
        del model, optimizer
        if i == count // 5:
            gc.collect()
            early = memory()
    gc.collect()
    figure(f"{count:,} models: time", time.perf_counter() - start, "s")
    figure("  models still alive", sum(r() is not None for r in refs), "models", 1)
    figure("  slots still open", len(taps.SINKS), "slots")
    figure("  memory, growth over the last four fifths", memory() - early, "bytes", MEMORY_SLACK)
    session.finish("ok", None)
    figure("  slots after the end", len(taps.SINKS), "slots", 0)


def state(model: nn.Module) -> tuple[object, ...]:
    """Everything that a monitor changes while it is there."""
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    attributes = [sorted(vars(m)) for m in model.modules()]
    ours = sorted(t.name for t in threading.enumerate() if t.name.startswith("neuraldbg"))
    functions = (torch.compile, torch.autograd.backward, torch.optim.Optimizer.__init__)
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - one number
    return (
        hooks,
        attributes,
        ours,
        functions,
        files,
        len(taps.SINKS),
        len(boundaries.LISTENERS),
        len(loop.WATCHES),
    )


def monitors(count: int) -> None:
    """A monitor that is entered and left a thousand times."""
    folder = Path(tempfile.mkdtemp())
    model, optimizer = small()
    train(model, optimizer, 1)

    def once(i: int) -> None:
        with NeuralDbg(model, optimizer, out=folder / f"{i % 4}.ndbg", strict=True):
            train(model, optimizer, 1)

    once(0)
    before, start, early = state(model), time.perf_counter(), memory()
    for i in range(count):
        once(i)
    gc.collect()
    figure(f"{count:,} monitors: time", time.perf_counter() - start, "s")
    figure("  memory, growth", memory() - early, "bytes", MEMORY_SLACK)
    same = state(model) == before
    print(f"  hooks, attributes, threads, functions, open files: {'same' if same else 'CHANGED'}")
    if not same:
        broken.append("what a monitor leaves")


PARTS: dict[str, tuple[Callable[[int], None], int]] = {
    "steps": (steps, 1_000_000),
    "modules": (modules, 10_000),
    "runs": (runs, 16),
    "models": (models, 1_000),
    "monitors": (monitors, 1_000),
}


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all of them by default")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the full numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in options.parts or PARTS:
        part, count = PARTS[name]
        part(max(1, int(count * options.scale)))
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
