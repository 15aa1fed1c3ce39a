"""Damaged run files: is each one read or refused with a clear error?

    python bench/fuzz.py --mutations 10000

Takes a run file apart in every way that disks and strangers do (bits flipped, parts
overwritten or cut off, pages swapped, text and numbers replaced inside the database) and has
each copy diagnosed and reported, with a limit of time. Anything
but a result or a `RunFileError` is counted, printed and kept.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType

import numpy as np

from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import (
    Channel,
    Kind,
    LossFact,
    ModuleFact,
    OptimizerFact,
    ParamFact,
    RunFact,
)
from neuraldbg.core.metrics import ACT_RMS, GRAD_RMS, L_VALUE, LOOK, P_RATIO, STEP
from neuraldbg.errors import RunFileError
from neuraldbg.report.text import render
from neuraldbg.run import diagnose_file
from neuraldbg.store.writer import RunWriter

SECONDS = 20  # no damage may make a reader slower than this; whole files take milliseconds
PAGE = 4096

Damage = Callable[[bytearray, random.Random], None]


def sample(path: Path) -> None:
    """A run file with something of every kind in it."""
    writer = RunWriter(path, RunFact(id="r", command=("train.py",), steps=60))
    names = [f"layers.{i}" for i in range(12)]
    writer.modules([ModuleFact(n, "Linear", order=i, calls=1) for i, n in enumerate(names)])
    writer.params([ParamFact(f"{n}.weight", (8, 8), optimizer=0) for n in names])
    writer.optimizers([OptimizerFact(0, "SGD", ({"lr": 0.1},), 12, steps=60)])
    writer.losses([LossFact(kind="mse", reduction="mean", ops=("MseLoss",))])
    sites = [Channel(Kind.MODULE, n, metric) for n in names for metric in (ACT_RMS, GRAD_RMS)]
    sites += [Channel(Kind.PARAM, f"{n}.weight", P_RATIO) for n in names]
    writer.channels(LOOK, sites)
    writer.channels(STEP, [Channel(Kind.LOSS, "loss", L_VALUE)])
    for step in range(60):
        writer.frame(STEP, step, np.array([float("nan") if step > 50 else 1 / (step + 1)]))
        if step % 3 == 0:
            writer.frame(LOOK, step, np.linspace(0.1, 1, len(sites)) / (step + 1))
    writer.event(SemanticEvent("e1", EventType.LOSS, "loss", 51, "improving", "nonfinite"))
    writer.close()


def flip(data: bytearray, chance: random.Random) -> None:
    """Some bits."""
    for _ in range(chance.choice([1, 1, 3, 20, 200])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut(data: bytearray, chance: random.Random) -> None:
    """The end is missing."""
    del data[chance.randrange(len(data)) :]


def smear(data: bytearray, chance: random.Random) -> None:
    """A stretch of zeros or noise."""
    start = chance.randrange(len(data))
    stop = min(len(data), start + chance.randrange(1, PAGE))
    data[start:stop] = chance.choice([bytes(stop - start), chance.randbytes(stop - start)])


def head(data: bytearray, chance: random.Random) -> None:
    """The header of the file, or of a page."""
    start = chance.choice([0, chance.randrange(len(data) // PAGE) * PAGE])
    for _ in range(4):
        data[start + chance.randrange(100)] = chance.randrange(256)


def swap(data: bytearray, chance: random.Random) -> None:
    """Two pages."""
    one, two = (chance.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    data[one : one + PAGE], data[two : two + PAGE] = data[two : two + PAGE], data[one : one + PAGE]


def text(data: bytearray, chance: random.Random) -> None:
    """A number, a bracket or a letter of the stored text becomes another."""
    signs = b'0123456789-"{}[],:eN'
    places = [i for i, sign in enumerate(data) if sign in signs]
    for _ in range(chance.choice([1, 2, 5])):
        data[chance.choice(places)] = chance.choice(signs)


DAMAGES: tuple[Damage, ...] = (flip, cut, smear, head, swap, text)
# What a stranger may put in any cell: wrong types, huge numbers, hostile names.
CELLS = (
    "NULL", "-1", "9223372036854775807", "1e308", "'x'", "x'ff'", "zeroblob(100000)", "'{}'",
    "'[]'",
    "'<script>alert(1)</script>'", "'../../etc/passwd'", "char(27) || '[2J'", "'NaN'", "json",
)  # fmt: skip
COLUMNS = {
    "fact": ("key", "json"), "channel": ("position", "kind", "name", "metric", "stream"),
    "frame": ("step", '"values"', "present", "stream"), "event": ("step", "json", "id"),
    "gap": ("what", "why"),
}  # fmt: skip


def rewrite(path: Path, chance: random.Random) -> None:
    """A cell of a table, by SQL."""
    table = chance.choice(list(COLUMNS))
    column, cell = chance.choice(COLUMNS[table]), chance.choice(CELLS)
    some = chance.choice(["1", "abs(random()) % 3 = 0"])
    with closing(sqlite3.connect(path)) as file:
        try:
            file.execute(f"UPDATE OR IGNORE {table} SET {column} = {cell} WHERE {some}")  # noqa: S608
            file.commit()
        except sqlite3.Error:
            return  # no such cell can be


def mutate(original: bytes, path: Path, number: int, seed: int) -> str:
    """Write a damaged copy; says how it was damaged."""
    chance = random.Random(seed * 1_000_003 + number)  # noqa: S311 - not a secret
    data = bytearray(original)
    kind = number % (len(DAMAGES) + 1)
    if kind < len(DAMAGES):
        DAMAGES[kind](data, chance)
    path.write_bytes(data)
    if kind < len(DAMAGES):
        return DAMAGES[kind].__name__
    rewrite(path, chance)
    return "rewrite"


def outcome(path: Path) -> str:
    """What reading a file comes to; anything but `read` and `refused` is a fault of ours."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        found = diagnose_file(path)
        found.to_json()
        said = render(found)
    except RunFileError as error:
        return "refused" if str(path) in str(error) else f"unclear: {error}"
    except TimeoutError:
        return "too slow"
    except Exception:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return "an escape sequence was printed" if "\x1b" in said else "read"


def fuzz(mutations: int, seed: int, folder: Path) -> Counter[str]:
    """How many copies were read, refused, or something else, by kind of damage."""
    sample(folder / "whole.ndbg")
    original = (folder / "whole.ndbg").read_bytes()
    counts: Counter[str] = Counter()
    for number in range(mutations):
        path = folder / f"{number}.ndbg"
        how = mutate(original, path, number, seed)
        found = outcome(path)
        counts[f"{how}: {found if found in ('read', 'refused') else 'FAULT'}"] += 1
        if found in ("read", "refused"):
            path.unlink()
        else:
            print(f"{path}\n{found}")
    return counts


def main() -> int:
    """Damage, read, count."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20261202)
    options = parser.parse_args()
    counts = fuzz(options.mutations, options.seed, Path(tempfile.mkdtemp()))
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    return int(any("FAULT" in what for what in counts))


if __name__ == "__main__":
    sys.exit(main())
