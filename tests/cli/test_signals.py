"""Ctrl-C and SIGTERM: the diagnosis is written, then the process ends as it would have."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .programs import PLAIN, RUN, Ended, end, start

WAIT = """
import atexit, sys, time
atexit.register(lambda: print("at exit", flush=True))
{setup}
try:
    print("ready", flush=True)
    time.sleep(30)
finally:
    print("finally", flush=True)
"""


def interrupted(words: list[str], folder: Path, number: signal.Signals) -> Ended:
    """Start a program, wait until it is ready, and send it a signal."""
    process = start(words, folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)  # until it sleeps
    process.send_signal(number)
    return end(process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
@pytest.mark.parametrize(
    "setup",
    [
        "",
        "import signal; signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))",
        "import signal; signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))",
    ],
    ids=["plain", "handled", "asked"],
)
def test_a_signal_ends_the_script_as_it_would(
    number: signal.Signals, setup: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WAIT.format(setup=setup))
    plain = interrupted([*PLAIN, "train.py"], tmp_path, number)
    ours = interrupted([*RUN, "--json", "d.json", "train.py"], tmp_path, number)
    assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err)
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["run"]["finished"] == ("exception" if ours.code == 9 else "interrupted")


def test_a_script_that_ignores_sigterm_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\ntime.sleep(0.6)\nprint('done')\n"
    )
    ours = interrupted([*RUN, "--json", "d.json", "train.py"], tmp_path, signal.SIGTERM)
    assert (ours.code, ours.out) == (0, "done\n")
    assert json.loads((tmp_path / "d.json").read_text())["run"]["finished"] == "ok"


def test_ctrl_c_ends_by_the_signal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAIT.format(setup=""))
    ours = interrupted([*RUN, "train.py"], tmp_path, signal.SIGINT)
    assert ours.code == -signal.SIGINT
    assert ours.err.endswith("KeyboardInterrupt\n")


def test_sigterm_ends_by_the_signal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAIT.format(setup=""))
    ours = interrupted([*RUN, "train.py"], tmp_path, signal.SIGTERM)
    assert ours.code == -signal.SIGTERM


def test_forked_children_die_of_sigterm_at_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
import multiprocessing as mp, signal, time
def work():
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ready.set()
    time.sleep(30)
context = mp.get_context("fork")
ready = context.Event()
child = context.Process(target=work)
child.start()
ready.wait()
child.terminate()
child.join()
print(child.exitcode)
"""
    )
    assert end(start([*RUN, "train.py"], tmp_path)).out == "-15\n"


def test_an_ignored_sigterm_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal; print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)"
    )
    command = f"trap '' TERM; exec {' '.join(RUN)} train.py"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
