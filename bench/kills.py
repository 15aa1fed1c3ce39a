"""`kill -9` at random moments of a writer under load: what is left in the run file?

    python bench/kills.py --kills 100

A process writes frames as fast as it can, with events now and then, and prints what it has
handed over and when. It is killed at a random moment. Each file must open, hold everything
that was handed over more than a second before the kill, and nothing in halves.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from neuraldbg.core.facts import Kind
from neuraldbg.store.reader import RunFile

LOAD = """
import os, sys, time
from pathlib import Path
import numpy as np
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Channel, Kind, RunFact
from neuraldbg.store.writer import RunWriter

writer = RunWriter(Path(sys.argv[1]), RunFact(id="r"))
writer.channels("step", [Channel(Kind.LOSS, "loss", "value"), Channel(Kind.RUN, "", "seconds")])
writer.channels("look", [Channel(Kind.MODULE, f"m{i}", "act_rms") for i in range(300)])
print("ready", flush=True)
step = 0
while True:
    writer.frame("step", step, np.array([step * 0.5, step * 2.0]))
    if step % 10 == 0:
        writer.frame("look", step, np.full(300, step, np.float32))
    if step % 50 == 0:
        writer.event(SemanticEvent(f"e{step}", EventType.LOSS, "loss", step, "healthy", "dead"))
    if step % 20 == 0:
        os.write(1, f"{step} {time.monotonic()}\\n".encode())
        time.sleep(0.002)
    step += 1
"""


def killed(path: Path, moment: float) -> tuple[list[tuple[int, float]], float]:
    """Run the load until a moment; what it had handed over by when, and when it was killed."""
    command = [sys.executable, "-c", LOAD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout
        if out is None or out.readline() != "ready\n":
            message = "the writer did not start"
            raise RuntimeError(message)
        time.sleep(moment)  # the pipe holds some thousand lines; then the writer waits
        when = time.monotonic()
        process.send_signal(signal.SIGKILL)
        lines = [line.split() for line in out if line.endswith("\n")]
    return [(int(step), float(at)) for step, at in lines if len(at) > 3], when


def verdict(path: Path, told: list[tuple[int, float]], when: float) -> str:
    """`whole`, or what is wrong with a file."""
    with RunFile(path) as file:
        record, events = file.record(), file.events()
    loss = record.series(Kind.LOSS, "loss", "value")
    other = record.series(Kind.RUN, "", "seconds")
    looks = [s for c, s in record.channels.items() if c.kind == Kind.MODULE]
    promised = max((step for step, at in told if at < when - 1.0), default=-1)
    stored = len(loss)
    if stored <= promised:
        return f"lost steps {stored} to {promised}"
    if loss.steps.tolist() != list(range(stored)) or (loss.values != loss.steps * 0.5).any():
        return "a step is missing or wrong"
    if len(other) != stored or (other.values != other.steps * 2.0).any():
        return "a step is half there"
    if any(len(s) != len(looks[0]) or (s.values != s.steps).any() for s in looks):
        return "a look is half there"
    if sorted(e.step for e in events) != list(range(0, stored, 50)):
        return "an event is missing"
    return "whole"


def main() -> int:
    """Kill, look, count."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20261202)
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311 - not a secret
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.kills):
            path = Path(folder) / f"{i}.ndbg"
            told, when = killed(path, chance.uniform(0.0, 2.5))
            found[verdict(path, told, when)] += 1
    for what, count in found.most_common():
        print(f"{count:4} {what}")
    return int(set(found) != {"whole"})


if __name__ == "__main__":
    sys.exit(main())
