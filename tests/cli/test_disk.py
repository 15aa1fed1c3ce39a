"""Disks that fill up, folders that take nothing, clocks that jump: the training goes on."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from .programs import OURS, PLAIN, RUN, call

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

TRAIN = """
import os, resource, time
os.environ["OMP_NUM_THREADS"] = "1"
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    if step == 5:
        {fifth}
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
{last}
print(loss.item().hex())
"""


def script(folder: Path, fifth: str = "pass", last: str = "") -> None:
    (folder / "train.py").write_text(TRAIN.format(fifth=fifth, last=last))


def test_a_disk_that_is_full_costs_the_recording_and_nothing_else(tmp_path: Path) -> None:
    # No file may grow beyond what it is: every write fails, as on a full disk. The writer
    # commits twice a second.
    script(tmp_path, "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))", "time.sleep(0.8)")
    plain = call([*PLAIN, "train.py"], tmp_path)
    ours = call([*RUN, "--budget", "inf", "--out", "r.ndbg", "train.py"], tmp_path)
    assert (ours.code, ours.out) == (plain.code, plain.out)
    assert ours.err.count("ObservationWarning") == 1
    assert "because writing its file failed" in ours.err
    read = call([*OURS, "explain", "./r.ndbg"], tmp_path)
    assert read.code in (0, 2)
    assert "Traceback" not in read.err


def test_a_folder_that_takes_no_file_is_replaced_and_told(tmp_path: Path) -> None:
    script(tmp_path)
    (tmp_path / ".neuraldbg").write_text("in the way")
    (tmp_path / "spare").mkdir()
    ours = call(
        [*RUN, "--json", "d.json", "train.py"], tmp_path, {"TMPDIR": str(tmp_path / "spare")}
    )
    assert ours.code == 0
    (gap,) = json.loads((tmp_path / "d.json").read_text())["gaps"]
    assert gap["what"] == "the folder of runs"
    assert len(list((tmp_path / "spare").glob("*.ndbg"))) == 1


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    """An hour back, and a year forth: steps and costs are measured by a clock that cannot."""
    script(tmp_path, "now = time.time; time.time = lambda: now() - 3600 if now() % 2 < 1 else 4e9")
    ours = call([*RUN, "--json", "d.json", "--out", "r.ndbg", "train.py"], tmp_path)
    assert ours.code == 0
    data = json.loads((tmp_path / "d.json").read_text())
    assert data["run"]["steps"] == 60
    assert data["gaps"] == []
    assert 0 <= data["overhead"]["seconds"] < 3600
