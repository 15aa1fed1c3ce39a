"""Colours on a real terminal, and none anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from .programs import OURS, RUN, call, environment

TRAIN = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
x = torch.randn(64, 4)
for step in range(60):
    optimizer.zero_grad()
    (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
"""


def on_a_terminal(words: list[str], folder: Path, env: dict[str, str]) -> str:
    """What a program prints to a terminal."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in environment().items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        words, cwd=folder, env={**kept, "TERM": "xterm-256color", **env}, stdout=theirs,
        stderr=theirs, stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        os.close(theirs)
        out = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            out += part
        assert process.wait() == 0
    os.close(ours)
    return out.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("verb", ["explain", "show"])
def test_a_terminal_gets_the_same_words_in_colour(
    verb: str, recorded: Path, tmp_path: Path
) -> None:
    words = [*OURS, verb, str(recorded)]
    plain = call(words, tmp_path).out
    shown = on_a_terminal(words, tmp_path, {})
    assert "\x1b[" in shown
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == plain


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colour_gets_none(env: dict[str, str], recorded: Path, tmp_path: Path) -> None:
    assert "\x1b" not in on_a_terminal([*OURS, "explain", str(recorded)], tmp_path, env)


def test_at_a_terminal_the_end_of_a_run_has_its_loss(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    shown = on_a_terminal([*RUN, "train.py"], tmp_path, {})
    assert "\x1b[1;32mHEALTHY\x1b[0m" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert re.search(r"^Loss   [▁▂▃▄▅▆▇█]+  [\d.]+ to [\d.]+(e-\d)?$", plain, re.MULTILINE)
    assert max(map(len, plain.splitlines())) <= 80


def test_a_comparison_at_a_terminal_has_both_losses(recorded: Path, tmp_path: Path) -> None:
    words = [*OURS, "diff", str(recorded), str(recorded)]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(words, tmp_path, {}))
    assert (
        shown == call(words, tmp_path).out + "\nLoss\n  A  █▁!  2.5 to nan\n  B  █▁!  2.5 to nan\n"
    )
    bare = on_a_terminal(words, tmp_path, {"NO_COLOR": "1"})
    assert bare == call(words, tmp_path).out
