"""In a notebook: a real kernel executes real cells, and what they show is read back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("nbclient")

import nbformat
from nbclient import NotebookClient

SETUP = """
import torch
from neuraldbg import NeuralDbg
torch.manual_seed(0)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)

def train(lr, until=60):
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for step in range(until):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return net
"""
IN_PIECES = [
    """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
dbg = NeuralDbg(net, optimizer, out="run.ndbg")
dbg
""",
    "dbg.attach()",
    """
import time
def more(steps):
    for step in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
more(30)
dbg._writer.flush()
for wait in range(600):
    if dbg._display._seen:
        break
    time.sleep(0.1)
print(bool(dbg._display._seen), dbg.step)
""",
    "more(30); dbg.close()",
]


def executed(cells: list[str], folder: Path) -> list[list[dict[str, object]]]:
    """The outputs of each cell, as a person sees them in the end."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells]
    )
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [list(cell.outputs) for cell in notebook.cells]


def html(outputs: list[dict[str, object]]) -> str:
    """The one HTML output of a cell."""
    (shown,) = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    return shown


def text(outputs: list[dict[str, object]]) -> str:
    """What a cell printed."""
    return "".join(o["text"] for o in outputs if o["output_type"] == "stream")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, object]]]:
    """A notebook that watches in both ways."""
    cells = [
        SETUP,
        *IN_PIECES,
        "%load_ext neuraldbg",
        "%%neuraldbg\nprint('hello'); kept = train(lr=50.0)",
        "%neuraldbg explain last",
        "%neuraldbg list",
        "print(kept.weight.isnan().all().item())",
        "%%neuraldbg\n1 + 1",
        "%neuraldbg run train.py",
        "%neuraldbg explain nothing",
        "%%neuraldbg --fast\n1",
    ]
    return executed(cells, tmp_path_factory.mktemp("notebook"))


def test_a_monitor_is_shown_and_follows_the_training(shown: list) -> None:
    before, during = shown[1], shown[2]
    assert text(shown[3]) == "True 30\n"  # it has looked before the training was over
    assert "attach it to see the run here" in html(before)
    # The display of an earlier cell has been updated by the training of later ones.
    assert "-- step 59" in html(during)
    assert "HEALTHY: nothing suspicious in 60 steps." in html(during)


def test_a_cell_is_watched(shown: list) -> None:
    cell = shown[6]
    assert text(cell) == "hello\n"
    assert "FAILED" in html(cell)
    assert "[lr_too_high]" in html(cell)
    assert "<script" not in html(cell)
    assert text(shown[9]) == "True\n"  # what the cell made is there


def test_the_line_magic_speaks_like_the_command_line(shown: list) -> None:
    assert "[lr_too_high]" in html(shown[7])
    assert re.search(r"notebook.* failed ", text(shown[8]))


def test_what_cannot_be_done_is_said(shown: list) -> None:
    assert "saw no training in this cell" in html(shown[10])
    assert "!neuraldbg run train.py" in text(shown[11])
    assert text(shown[12]).startswith("neuraldbg: No run")
    assert "takes no words, not '--fast'" in text(shown[13])
