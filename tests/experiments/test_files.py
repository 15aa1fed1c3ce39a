"""The user's files stay as they are: the scratch copy and what is written elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from neuraldbg.core.facts import RunFact
from neuraldbg.experiments import environment, scratch
from neuraldbg.experiments.redirect import MIRROR


def test_small_files_are_copied_and_large_ones_linked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / ".git").mkdir()
    (home / "train.py").write_text("x = 1")
    (home / "data" / "big.bin").write_bytes(b"0" * (scratch.SMALL + 1))
    copied = scratch.copy(home, tmp_path / "work")
    assert (copied.files, copied.linked) == (1, 1)
    assert (tmp_path / "work" / "train.py").read_text() == "x = 1"
    assert (tmp_path / "work" / "data" / "big.bin").is_symlink()
    assert not (tmp_path / "work" / ".git").exists()


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(home / "pipe")
    assert scratch.copy(home, tmp_path / "work").files == 0


WRITER = """
import os, sys
from pathlib import Path
from neuraldbg.experiments.redirect import Redirect
home, work = Path(sys.argv[1]), Path(sys.argv[2])
redirect = Redirect(work, home, ())
redirect.install()
os.chdir(work)
Path("local.txt").write_text("mine")
with open(home / "result.txt", "w") as file:
    file.write("new")
(home / "out" / "deep").mkdir(parents=True)
(home / "out" / "deep" / "a.txt").write_text("a")
assert (home / "result.txt").open().read() == "new"
assert open("big.bin").read() == "old"
with open("big.bin", "w") as file:   # a link to the user's file
    file.write("over")
try:
    os.remove(home / "result.txt")
except PermissionError as error:
    assert "no scratch copy" in str(error)
else:
    sys.exit("removed")
assert len(redirect.moved) == 3, redirect.moved
"""


def test_writes_outside_the_copy_land_in_it(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "result.txt").write_text("old")
    (home / "big.bin").write_text("old")
    (work / "big.bin").symlink_to(home / "big.bin")
    ended = subprocess.run([sys.executable, "-c", WRITER, str(home), str(work)], check=False)
    assert ended.returncode == 0
    assert (home / "result.txt").read_text() == "old"
    assert (home / "big.bin").read_text() == "old"
    assert not (home / "out").exists()
    assert not (home / "local.txt").exists()
    assert list((work / MIRROR).rglob("a.txt"))


def test_the_environment_is_what_was_recorded_without_secrets(monkeypatch) -> None:
    seen = environment.recorded({
        "OMP_NUM_THREADS": "2", "TORCH_AUTH_TOKEN": "x", "PYTORCH_SECRET": "x",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "HOME": "/home/me", "AWS_KEY": "x",
    })  # fmt: skip
    assert seen == {"OMP_NUM_THREADS": "2", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONPATH", "src")
    run = RunFact(id="x", notes={"env.OMP_NUM_THREADS": "2"})
    env = environment.for_trial(run, compiled=False)
    assert env["OMP_NUM_THREADS"] == "2"
    assert env["TORCH_COMPILE_DISABLE"] == "1"
    assert Path(env["PYTHONPATH"]).is_absolute()
    assert "TORCH_COMPILE_DISABLE" not in environment.for_trial(run, compiled=True)
