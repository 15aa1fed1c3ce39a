"""`neuraldbg verify` on real scripts: what they do besides training must not matter."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from .programs import OURS, RUN, Ended, call, end, start

VERIFY = [*OURS, "verify", "last", "--yes", "--seeds", "1"]

# Gradients are never zeroed, and the rate is such that this never learns.
BUSY = """
import sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader, TensorDataset

def main(rate, steps):
    {seed}
    scale = float(Path("data/scale.txt").read_text())
    x = torch.randn(256, 4) * scale
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [1.5]])
    model = torch.nn.Linear(4, 1)
    {compile}
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, num_workers={workers})
    step = 0
    while step < steps:
        for a, b in loader:
            loss = torch.nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            step += 1
            {each}
    torch.save(model.state_dict(), "model.pt")
    torch.save(model.state_dict(), Path(sys.argv[3]) / "model.pt")

if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
"""


def project(folder: Path, **changes: Any) -> None:
    """A small project: a script and its data."""
    (folder / "data").mkdir()
    (folder / "data" / "scale.txt").write_text("1.0")
    (folder / "outside").mkdir()
    plain = {"seed": "torch.manual_seed(0)", "compile": "", "workers": 0, "each": "pass"}
    (folder / "train.py").write_text(BUSY.format(**{**plain, **changes}))


def record(folder: Path) -> Ended:
    """Record the failing run."""
    return call([*RUN, "--quiet", "train.py", "0.2", "160", str(folder / "outside")], folder)


def experiments(ended: Ended) -> dict[str, dict[str, Any]]:
    """The experiments by cause."""
    assert ended.code == 0, ended.notices + ended.err
    found = json.loads(ended.out)["hypotheses"]
    return {h["cause"]: h["experiment"] for h in found if h["experiment"]}


def state(folder: Path) -> dict[str, bytes]:
    """Every file of the user."""
    files = (p for p in folder.rglob("*") if p.is_file() and ".neuraldbg" not in p.parts)
    return {str(p): p.read_bytes() for p in files}


def test_arguments_files_checkpoints_workers_and_much_output(tmp_path: Path) -> None:
    project(tmp_path, workers=2, each="print('x' * 1000, file=sys.stderr); print('y' * 5000)")
    record(tmp_path)
    before = state(tmp_path)
    ended = call([*VERIFY, "--json", "--budget", "100"], tmp_path)
    result = experiments(ended)["missing_zero_grad"]
    assert result["result"] == "confirmed"
    assert result["reproduced"]
    assert result["intervention"] == "zero_grad"
    assert "gradients set to None" in result["text"]
    assert state(tmp_path) == before
    # It is kept with the run, and put into every later report.
    later = call([*OURS, "explain", "last"], tmp_path)
    assert "CONFIRMED, this cause is necessary" in later.out


def test_a_compiled_script_without_seeds(tmp_path: Path) -> None:
    project(tmp_path, seed="pass", compile="model = torch.compile(model, backend='aot_eager')")
    record(tmp_path)
    ended = call([*VERIFY, "--json", "--budget", "100"], tmp_path)
    assert experiments(ended)["missing_zero_grad"]["result"] == "confirmed"


def test_a_script_that_crashes(tmp_path: Path) -> None:
    crash = "assert loss.isfinite(), 'the loss is not finite'"
    project(tmp_path, each=crash)
    script = tmp_path / "train.py"
    script.write_text(
        script.read_text().replace("loss.backward()", "optimizer.zero_grad(); loss.backward()")
    )
    words = ["train.py", "30.0", "400", str(tmp_path / "outside")]
    assert call([*RUN, "--quiet", *words], tmp_path).code == 1
    ended = call([*VERIFY, "--json", "--budget", "100"], tmp_path)
    assert experiments(ended)["lr_too_high"]["result"] == "confirmed"


def test_a_changed_script_does_not_reproduce(tmp_path: Path) -> None:
    project(tmp_path)
    record(tmp_path)
    script = tmp_path / "train.py"
    repaired = script.read_text().replace(
        "loss.backward()", "optimizer.zero_grad(); loss.backward()"
    )
    script.write_text(repaired)
    ended = call([*VERIFY, "--json", "--budget", "60"], tmp_path)
    assert experiments(ended) == {}
    assert "did not reproduce" in ended.notices
    assert "the script was changed after the run was recorded" in ended.notices


def test_longer_than_the_budget_and_interrupted(tmp_path: Path) -> None:
    project(tmp_path, each="import time; time.sleep(0.02)")
    record(tmp_path)
    # Less than a second is over before the script has imported torch.
    short = call([*VERIFY, "--json", "--budget", "0.5"], tmp_path)
    assert short.code == 0
    assert experiments(short) == {}
    process = start([*VERIFY, "--json", "--budget", "100"], tmp_path)
    assert process.stderr is not None
    assert "running it unchanged" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert ended.code == 0
    assert "interrupted; what was done so far is kept" in ended.notices


def test_the_plan_and_the_question(tmp_path: Path) -> None:
    project(tmp_path)
    record(tmp_path)
    plan = call([*OURS, "verify", "last", "--dry-run"], tmp_path)
    assert plan.code == 0
    assert "To test   missing_zero_grad" in plan.out
    assert "side effects:" in plan.out
    asked = call([*OURS, "verify", "last"], tmp_path)
    assert asked.code == 2
    assert "pass --yes" in asked.notices
    (tmp_path / "train.py").unlink()
    gone = call(VERIFY, tmp_path)
    assert gone.code == 2
    assert "is not there any more" in gone.notices


@pytest.mark.parametrize("words", [["-m", "pkg.train"]])
def test_a_module(tmp_path: Path, words: list[str]) -> None:
    project(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "train.py").rename(tmp_path / "pkg" / "train.py")
    call([*RUN, "--quiet", *words, "0.2", "160", str(tmp_path / "outside")], tmp_path)
    ended = call([*VERIFY, "--json", "--budget", "100"], tmp_path)
    assert experiments(ended)["missing_zero_grad"]["result"] == "confirmed"


# All its random numbers come from streams of its own.
STREAMS = """
import random
import numpy as np
import torch

order = torch.Generator().manual_seed(0)
weights = np.random.RandomState(0)
noise = random.Random(0)
x = torch.tensor(np.random.default_rng(0).normal(size=(256, 4)), dtype=torch.float32)
y = x @ torch.tensor([[1.0], [-2.0], [0.5], [1.5]])
model = torch.nn.Linear(4, 1)
with torch.no_grad():
    model.weight.copy_(torch.tensor(weights.uniform(-0.5, 0.5, (1, 4))))
    model.bias.zero_()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(120):
    chosen = torch.randperm(256, generator=order)[:32]
    loss = torch.nn.functional.mse_loss(model(x[chosen]), y[chosen] + 0.01 * noise.random())
    loss.backward()
    optimizer.step()
"""


def test_an_interval_over_seeds_of_a_script_with_streams_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STREAMS)
    call([*RUN, "--quiet", "train.py"], tmp_path)
    words = [*OURS, "verify", "last", "--yes", "--json", "--seeds", "3", "--budget", "120"]
    result = experiments(call(words, tmp_path))["missing_zero_grad"]
    assert result["result"] == "confirmed"
    assert result["replicates"] == 3
    assert "the failure was gone in 3 of 3 seeds" in result["text"]
    assert "the loss went from" in result["text"]
    assert "95 % interval over seeds" in result["text"]
    effect = result["effect"]
    low, high = effect["interval"]
    assert low <= effect["learnt_more"] <= high
    # Three different trainings, and the same three on both sides.
    assert len(set(effect["loss_changed"])) == 3
    assert len(set(effect["loss_unchanged"])) == 3


PARITY = """
import torch

bits = torch.tensor([[i >> k & 1 for k in range(4)] for i in range(16)]) * 2.0 - 1
parity = (bits > 0).sum(1, keepdim=True).remainder(2).float()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
run = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
for step in range(400):
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(run(bits), parity)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_model_that_is_too_narrow_is_widened(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PARITY)
    call([*RUN, "--quiet", "train.py"], tmp_path)
    result = experiments(call([*VERIFY, "--json"], tmp_path))["insufficient_capacity"]
    assert result["result"] == "confirmed"
    assert result["necessary"]
    assert "the narrowest hidden layers widened to 64 units" in result["text"]


# No logarithm, root or division: no autograd node tells of it. It breaks at a step that is not
# looked at, which the script notes for its repetition.
OUT_OF_RANGE = """
from pathlib import Path
import torch
from neuraldbg.torch.taps import SWITCH
from torch import nn

class Angle(nn.Module):
    def forward(self, x):
        return torch.acos(0.9 * torch.tanh(x) if x.std(0).min() > 0 else 1 + x * x)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), Angle(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
note = Path("step.txt")
broken = int(note.read_text()) if note.exists() else None
for step in range(700):
    if broken is None and step >= 600 and not SWITCH.on:
        broken = step
        note.write_text(str(step))
    x = torch.randn(16, 4)
    loss = (model(0 * x if step == broken else x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_fell_between_two_looks_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OUT_OF_RANGE)
    recorded = call([*RUN, "--budget", "0", "train.py"], tmp_path)
    assert "fell between two looks" in recorded.err
    planned = call([*OURS, "verify", "last", "--dry-run"], tmp_path)
    step = int((tmp_path / "step.txt").read_text())
    assert f"with a look at each from step {step - 16}" in planned.out
    ended = call([*VERIFY, "--json", "--budget", "60"], tmp_path)
    assert f"1 gives a non-finite value from finite input at step {step}" in ended.notices
    best = json.loads(ended.out)["hypotheses"][0]
    assert best["cause"] == "nonfinite_operation"
    assert (best["where"][0], best["first_step"]) == ("1", step)
    # It is kept with the run, and needs no second look.
    assert "(in a repetition)" in call([*OURS, "explain", "last"], tmp_path).out
    assert "Before" not in call([*OURS, "verify", "last", "--dry-run"], tmp_path).out


# A teacher that learns, and after it a student whose rate is far too high.
STUDENT = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(512, 8)
y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] > 0).long()

def fit(model, rate, target):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(15):
        for b in torch.randperm(512).split(64):
            loss = F.cross_entropy(model(x[b]), target[b])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

def net():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))

teacher, student = net(), net()
fit(teacher, 1e-2, y)
with torch.no_grad():
    taught = teacher(x).softmax(-1)
fit(student, 3.0, taught)
"""


def test_the_second_of_two_trainings_is_tested(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STUDENT)
    call([*RUN, "--quiet", "train.py"], tmp_path)
    ended = call([*VERIFY, "--json", "--budget", "150"], tmp_path)
    best = json.loads(ended.out)["hypotheses"][0]
    assert best["cause"] == "lr_too_high"
    assert best["first_step"] == 120
    found = experiments(ended)["lr_too_high"]
    assert found["result"] == "confirmed", found["text"]
