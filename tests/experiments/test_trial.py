"""The process of one trial."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neuraldbg.experiments.spec import Spec, Status
from neuraldbg.experiments.trial import OCCASIONS
from neuraldbg.store.reader import load_record

STOP = 120
SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    x = torch.randn(16, 4)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def ended(folder: Path, intervention: str) -> tuple[int, int]:
    """The step at which a trial of that intervention ended, and how often it changed something."""
    work = str(folder)
    (folder / "train.py").write_text(SCRIPT)
    out, word = folder / "run.ndbg", folder / "status.json"
    spec = Spec(
        "train.py", (), False, work, work, str(out), str(word), intervention, {}, stop=STOP
    )  # fmt: skip
    told = spec.write(folder / "spec.json")
    words = [sys.executable, "-m", "neuraldbg.experiments.trial", str(told)]
    subprocess.run(words, check=True, timeout=120)
    return load_record(out).facts.run.steps, Status.read(word).applied


@pytest.mark.parametrize(
    ("intervention", "last", "applies"),
    [
        ("lr_x0.1", STOP, True),
        ("dropout_0.1", OCCASIONS, False),  # there is none, and none will come
        ("skip_outliers", STOP, False),  # a bad batch may yet come
    ],
)
def test_a_trial_ends_early_where_nothing_can_be_changed(
    tmp_path: Path, intervention: str, last: int, *, applies: bool
) -> None:
    steps, applied = ended(tmp_path, intervention)
    assert last <= steps <= last + 1
    assert (applied > 0) is applies
