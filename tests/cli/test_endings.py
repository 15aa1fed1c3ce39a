"""However training ends, the script's ending is its own and its run can be explained.

The endings that need no torch are compared in `test_as_plain_python.py` and
`test_signals.py`; here each one comes in the middle of real training.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from neuraldbg.cli import main

from .programs import PLAIN, RUN, call
from .test_run import SCHEMA

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

STEPS = 6
# The parent waits until its run file holds the steps: what is lost in the last second of a
# process that is killed is counted by bench/kills.py.
TRAIN = """
import ctypes, os, resource, signal, sqlite3, sys, threading, time
from pathlib import Path
os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch.utils.data import DataLoader, Dataset

def stored():
    if "NEURALDBG_RUN" not in os.environ:
        return
    for _ in range(200):
        with sqlite3.connect(f"file:{{os.environ['NEURALDBG_RUN']}}?mode=ro", uri=True) as file:
            (count,) = file.execute("SELECT COUNT(*) FROM frame WHERE stream = 'step'").fetchone()
        if count >= {steps}:
            return
        time.sleep(0.05)
    raise SystemExit("the steps were not stored")

class Points(Dataset):
    def __len__(self): return {steps} * 4
    def __getitem__(self, i):
        if i == 17:
            while {waits} and not os.path.exists("trained"):
                time.sleep(0.02)
            {item}
        return torch.linspace(-1, 1, 4) * (i % 7), i % 2

def end():
    {ending}

def train():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (x, y) in enumerate(DataLoader(Points(), batch_size=4, num_workers={workers},
                                  multiprocessing_context="fork" if {workers} else None)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        if step == 3: Path("trained").touch()
    stored()
    end()

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    {start}
"""


@dataclass(frozen=True)
class Ending:
    """How a script ends, and what that leaves: exit code, `finished`, the end of stderr."""

    ending: str = "pass"
    code: int = 1
    finished: str = "exception"
    says: str = ""
    item: str = "pass"
    workers: int = 0
    start: str = "train()"

    @property
    def steps(self) -> int:
        """How many steps there are before it: the fifth batch is the one that ends a worker."""
        return 4 if self.workers else STEPS


def kill(name: str) -> str:
    """A signal to oneself, and time for it to arrive."""
    return f"os.kill(os.getpid(), signal.{name}); time.sleep(30)"


ENDINGS = {
    "exception": Ending("raise ValueError('no luck')", says="ValueError: no luck\n"),
    "sys.exit": Ending("sys.exit(3)", 3),
    "memory error": Ending("bytearray(1 << 60)", says="MemoryError\n"),
    "SIGINT": Ending(kill("SIGINT"), -signal.SIGINT, "interrupted", "KeyboardInterrupt\n"),
    "SIGTERM": Ending(kill("SIGTERM"), -signal.SIGTERM, "interrupted"),
    "SIGKILL": Ending(kill("SIGKILL"), -signal.SIGKILL, "interrupted"),
    "segmentation fault": Ending("ctypes.string_at(0)", -signal.SIGSEGV, "interrupted"),
    "os.abort": Ending("os.abort()", -signal.SIGABRT, "interrupted"),
    "os._exit": Ending("os._exit(7)", 7, "interrupted"),
    "exception in a thread": Ending(
        "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
        0,
        "ok",
        "ZeroDivisionError: division by zero\n",
    ),
    "training in a thread": Ending(
        "raise ValueError('no luck')",
        0,
        "ok",
        "ValueError: no luck\n",
        start="thread = threading.Thread(target=train); thread.start(); thread.join()",
    ),
    "os._exit in a thread": Ending(
        "threading.Thread(target=os._exit, args=(9,)).start(); time.sleep(30)", 9, "interrupted"
    ),
    "exception in a worker": Ending(says="KeyError: 17\n", item="raise KeyError(i)", workers=1),
    "a killed worker": Ending(says="exited unexpectedly", item=f"{kill('SIGKILL')}", workers=1),
    "a segmentation fault in a worker": Ending(
        says="exited unexpectedly", item="ctypes.string_at(0)", workers=1
    ),
    "os._exit in a forked child": Ending(
        "child = os.fork(); child or os._exit(5); print(os.waitpid(child, 0)[1] >> 8)", 0, "ok"
    ),
}


def without_numbers(text: str) -> str:
    """Process ids and thread ids differ between two runs."""
    return "".join("#" if sign.isdigit() else sign for sign in text)


# The other endings go the same ways; each takes three processes that import torch.
ALWAYS = frozenset(
    {"exception", "sys.exit", "SIGTERM", "SIGKILL", "segmentation fault", "a killed worker"}
)


@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in ENDINGS],
)
def test_the_ending_is_the_scripts_and_the_run_is_explained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    it = ENDINGS[name]
    source = TRAIN.format(
        steps=STEPS,
        waits=bool(it.workers),
        item=it.item,
        ending=it.ending,
        workers=it.workers,
        start=it.start,
    )
    (tmp_path / "train.py").write_text(source)
    plain = call([*PLAIN, "train.py"], tmp_path)
    (tmp_path / "trained").unlink()
    ours = call(
        [*RUN, "--quiet", "--out", "r.ndbg", "train.py"], tmp_path, {"NEURALDBG_RUN": "r.ndbg"}
    )
    assert (ours.code, ours.out) == (plain.code, plain.out)
    assert ours.code == it.code
    assert without_numbers(ours.err) == without_numbers(plain.err)
    assert it.says in ours.err
    assert main(["explain", str(tmp_path / "r.ndbg"), "--json"]) == 0
    said, complaint = capsys.readouterr()
    assert complaint == ""
    data = json.loads(said)
    jsonschema.validate(data, SCHEMA)
    assert data["run"]["finished"] == it.finished
    assert data["run"]["steps"] >= it.steps
