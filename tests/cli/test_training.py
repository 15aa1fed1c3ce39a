"""Observed training, from the script's first line to the reading verbs."""

from __future__ import annotations

import json
import signal
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from neuraldbg import report

from .programs import OURS, PLAIN, RUN, call, end, start

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

SCHEMA = json.loads(
    (Path(report.__file__).parent / "schema" / "diagnosis.schema.json").read_text(encoding="utf-8")
)

TRAIN = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch.utils.data import DataLoader, Dataset

class Points(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.linspace(-1, 1, 4) * (i % 7), i % 2

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 8)
        self.head = torch.nn.Linear(8, 2)
    def forward(self, x): return self.head(torch.relu(self.body(x)))

def main():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for method in sys.argv[1].split(","):
        workers = dict(num_workers=1, multiprocessing_context=method) if method else {}
        for x, y in DataLoader(Points(), batch_size=16, **workers):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
    print(loss.item().hex(), torch.get_num_threads())
    if "forever" in sys.argv:
        print("ready", flush=True)
        while True:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    if "crash" in sys.argv:
        raise RuntimeError("boom")

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A folder with a training script."""
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_training_with_workers_is_the_same_and_its_run_can_be_read(script: Path) -> None:
    plain = call([*PLAIN, "train.py", ","], script)
    ours = call([*RUN, "--json", "d.json", "train.py", "fork,spawn"], script)
    assert (ours.code, ours.out) == (plain.code, plain.out) != (1, "")
    assert "NeuralDBG" in ours.err
    data = json.loads((script / "d.json").read_text())
    jsonschema.validate(data, SCHEMA)
    assert data["run"]["finished"] == "ok"
    assert data["run"]["steps"] == 8
    (path,) = (script / ".neuraldbg").glob("*.ndbg")
    assert f"Run file: .neuraldbg/{path.name}" in ours.err
    shown = call([*OURS, "show", "last"], script)
    assert "body" in shown.out


def test_a_crash_leaves_a_complete_run(script: Path) -> None:
    words = ["train.py", "", "crash"]
    ours = call([*RUN, "--quiet", "--out", "kept.ndbg", *words], script)
    assert ours.code == 1
    assert ours.err.endswith("RuntimeError: boom\n")
    assert "neuraldbg/" not in ours.err
    shown = json.loads(call([*OURS, "show", "kept.ndbg", "--json"], script).out)
    assert shown["run"]["finished"] == "exception"
    assert shown["run"]["exception"] == "RuntimeError: boom"


def test_sigterm_leaves_a_complete_run(script: Path) -> None:
    process = start([*RUN, "--json", "d.json", "train.py", "", "forever"], script)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        pass
    process.send_signal(signal.SIGTERM)
    assert end(process).code == -signal.SIGTERM
    data = json.loads((script / "d.json").read_text())
    assert data["run"]["finished"] == "interrupted"
    assert data["run"]["steps"] > 0
    (path,) = (script / ".neuraldbg").iterdir()
    assert path.suffix == ".ndbg"
