"""What leaves a training: numbers about it, and nothing of it; and nothing over the network."""

from __future__ import annotations

import os
import struct
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from neuraldbg.core.metrics import N_ENVIRONMENT
from neuraldbg.store.reader import load_record

from .programs import OURS, RUN, Ended, call

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

WEIGHT, SAMPLE = 0.7310937404632568, -0.6180339753627777  # as float32 has them
SECRET = "Xq7wPz9LkT3vBn5R"  # noqa: S105 - not one
# The values stand in the middle of others: the smallest and the largest of a tensor are stored.
TRAIN = f"""
import os
os.environ["OMP_NUM_THREADS"] = "1"
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
frozen = torch.nn.Parameter(torch.linspace(-1, 1, 32), requires_grad=False)
model.register_parameter("frozen", frozen)
with torch.no_grad():
    model[0].weight.copy_(torch.linspace(-1, 1, 32).view(8, 4))
    model[0].weight[2:4] = {WEIGHT}
    frozen[3:5] = {WEIGHT}
optimizer = torch.optim.SGD([{{"params": model.parameters(), "lr": 0.0}}])
x = torch.linspace(-1, 1, 64).view(16, 4)
x[3:5] = {SAMPLE}
text = ["the patient is called {SECRET}"] * 16
for _ in range(8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), torch.arange(16) % 2).backward()
    optimizer.step()
"""
# Every way of Python to a socket or to a name on the network raises an audit event.
NO_NETWORK = """
import os, sys

def hook(event, args):
    if event == "socket.gethostname":  # asks the kernel: who writes the file
        return
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.")):
        os.write(2, f"NETWORK {event} {args}\\n".encode())
        os._exit(77)

sys.addaudithook(hook)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Ended]]:
    """A folder with a run, and what `run` and the verbs that read said; without a network."""
    folder = tmp_path_factory.mktemp("private")
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(NO_NETWORK)
    path = os.pathsep.join([str(folder / "hook"), os.environ.get("PYTHONPATH", "")])
    hidden = {name: f"x-{SECRET}" for name in ("MY_VARIABLE", "HF_TOKEN", "TORCH_AUTH_TOKEN")}
    env = {"PYTHONPATH": path, **hidden}
    words = ["train.py", "--token", SECRET, f"--db=postgres://me:{SECRET}@host/db"]
    says = [
        call([*RUN, "--budget", "inf", "--out", "r.ndbg", "--json", "d.json", *words], folder, env)
    ]
    for verb in (["explain"], ["check"], ["show"], ["report"], ["export", "--format", "csv"]):
        says.append(call([*OURS, verb[0], "r.ndbg", *verb[1:]], folder, env))
    return folder, says


def written(folder: Path) -> dict[str, bytes]:
    """Everything that we wrote there."""
    ours = [p for p in folder.rglob("*") if p.is_file()]
    ours = [
        p for p in ours if p.name not in ("train.py", "sitecustomize.py") and p.suffix != ".pyc"
    ]
    return {p.name: p.read_bytes() for p in ours}


def test_no_socket_is_opened(recorded: tuple[Path, list[Ended]]) -> None:
    _, says = recorded
    assert {ended.code for ended in says} <= {0, 1}, [ended.err for ended in says]
    assert "NETWORK" not in "".join(ended.err for ended in says)


def test_the_hook_would_have_noticed(recorded: tuple[Path, list[Ended]]) -> None:
    folder, _ = recorded
    (folder / "hook" / "call.py").write_text("import socket; socket.socket()")
    ended = call([sys.executable, "hook/call.py"], folder, {"PYTHONPATH": str(folder / "hook")})
    assert ended.code == 77
    (folder / "hook" / "call.py").unlink()


@pytest.mark.parametrize("value", [WEIGHT, SAMPLE], ids=["weight", "sample"])
def test_no_weight_and_no_sample_is_kept(value: float, recorded: tuple[Path, list[Ended]]) -> None:
    folder, says = recorded
    forms = [struct.pack("<f", value), struct.pack("<d", value), f"{value:.5f}".encode()]
    found = written(folder)
    assert found.keys() == {"r.ndbg", "d.json", "r.html"}
    found["what was printed"] = "".join(ended.out for ended in says).encode()
    for name, content in found.items():
        assert not [form for form in forms if form in content], name


def test_of_the_environment_only_what_decides_how_a_run_computes_is_kept(
    recorded: tuple[Path, list[Ended]],
) -> None:
    folder, _ = recorded
    facts = load_record(folder / "r.ndbg").facts.run
    kept = {name for name in facts.notes if name.startswith(N_ENVIRONMENT)}
    assert f"{N_ENVIRONMENT}OMP_NUM_THREADS" in kept
    assert not [x for x in kept if "TOKEN" in x or "PATH" in x or "VARIABLE" in x]


def test_no_secret_no_text_and_no_variable_is_kept(recorded: tuple[Path, list[Ended]]) -> None:
    folder, says = recorded
    for name, content in written(folder).items():
        assert SECRET.encode() not in content, name
        assert b"MY_VARIABLE" not in content, name
    assert SECRET not in "".join(ended.out + ended.err for ended in says)
