"""`run --live`: a screen at the bottom of the terminal, and a script that notices nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from neuraldbg.cli.live import Live
from neuraldbg.cli.screen import ROOM, Screen

from .programs import PLAIN, RUN, call
from .terminals import ROWS, Terminal

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

TRAIN = """
import os, signal, sys
import torch
from tqdm import tqdm

print(sys.stdout.isatty(), sys.stderr.isatty(), type(sys.stdout).__name__)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
steps = range(40)
for step in tqdm(steps, ncols=60, bar_format="{l_bar}{bar}|") if "tqdm" in sys.argv else steps:
    optimizer.zero_grad()
    loss = net(torch.randn(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
    if "tqdm" not in sys.argv:
        print("step", step, loss.item().hex())
print("trained")
if "wait" in sys.argv:
    sys.stdin.readline()
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    os.wait()
except ChildProcessError:
    print("no child")
sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A folder with a training script."""
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def own_lines(shown: str) -> list[str]:
    """What the script itself printed."""
    return [line for line in shown.splitlines() if re.match(r"True|step|trained|no child", line)]


@needs_torch
@pytest.mark.parametrize("how", ["print", "tqdm"])
def test_the_screen_is_below_what_the_script_prints(how: str, script: Path) -> None:
    plain = Terminal()
    plain.start([*PLAIN, "train.py", how], script, {})
    assert plain.end() == 3
    ours = Terminal()
    ours.start([*RUN, "--live", "train.py", how, "wait"], script, {})
    ours.until("-- step 39")
    *above, title = ours.shown().partition("-- NeuralDBG --")[0::2]
    assert "trained" in above[0]
    for said in ("\nLoss    ", "\nLayers  ···\n", "\nEvents", "\nBest    ", "\nCost    "):
        assert said in title
    ours.type("\n")
    assert ours.end() == 3
    everything = ours.scrolled()
    assert own_lines(everything) == own_lines(plain.scrolled())
    assert ("100%|" in everything) == (how == "tqdm")
    # The lines are given back, and the report stands where the script left the cursor.
    assert "-- step 39" not in everything
    assert "no child\n\n----" in everything
    assert ours.screen.margins in (None, (0, ROWS - 1))


@needs_torch
def test_a_script_that_is_killed_leaves_a_terminal_in_order(script: Path) -> None:
    terminal = Terminal()
    terminal.start([*RUN, "--live", "train.py", "print", "wait", "killed"], script, {})
    terminal.until("-- step 39")
    terminal.type("\n")
    assert terminal.end() == -9
    assert "-- NeuralDBG" not in terminal.shown()
    assert terminal.screen.margins in (None, (0, ROWS - 1))


@needs_torch
def test_without_a_terminal_there_is_one_line(script: Path) -> None:
    plain = call([*PLAIN, "train.py"], script)
    ours = call([*RUN, "--live", "train.py"], script)
    assert (ours.code, ours.out) == (plain.code, plain.out)
    assert ours.notices == "neuraldbg: --live shows nothing: stderr is no terminal\n"


@needs_torch
def test_a_terminal_that_cannot_move_its_cursor_is_left_alone(script: Path) -> None:
    terminal = Terminal()
    terminal.start([*RUN, "--live", "train.py"], script, {"TERM": "dumb"})
    assert terminal.end() == 3
    assert "--live shows nothing: the terminal is 'dumb'" in terminal.scrolled()


def test_what_fails_is_told(tmp_path: Path) -> None:
    reads, writes = os.pipe()  # no terminal
    assert Live(tmp_path / "none.ndbg", writes, []).stop().startswith("OSError: ")
    os.close(reads)
    os.close(writes)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal on which this very process draws."""
    made = Terminal(rows=20)
    yield made
    os.close(made.theirs)
    os.close(made.ours)


def test_the_cursor_and_what_is_written_stay(terminal: Terminal) -> None:
    screen = Screen(terminal.theirs, 3)
    for number in range(40):
        os.write(terminal.theirs, f"line {number}\r\nhalf ".encode())
        screen.draw([f"a{number}", "b", "c" * 99])
        os.write(terminal.theirs, b"a line\r\n")
        terminal.feed()
    terminal.drain()
    shown = terminal.shown().splitlines()
    assert shown[-3:] == ["a39", "b", "c" * 80]
    assert shown[:-4][-2:] == ["line 39", "half a line"]
    assert terminal.scrolled().count("half a line") == 40
    screen.close()
    terminal.drain()
    assert terminal.shown().rstrip().endswith("half a line")


def test_it_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    screen = Screen(terminal.theirs, 3)
    screen.draw(["a", "b", "c"])
    terminal.drain()
    terminal.resize(24, 80)
    screen.draw(["A", "B", "C"])
    terminal.drain()
    assert terminal.shown().split() == ["A", "B", "C"]
    terminal.resize(3 + ROOM - 1, 80)
    screen.draw(["x", "y", "z"])
    terminal.drain()
    assert "x" not in terminal.shown()
