"""Colours on a real terminal, and none anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from .programs import OURS, call, environment


def on_a_terminal(words: list[str], folder: Path, env: dict[str, str]) -> str:
    """What a program prints to a terminal."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in environment().items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        words, cwd=folder, env={**kept, "TERM": "xterm-256color", **env}, stdout=theirs,
        stdin=subprocess.DEVNULL,
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
