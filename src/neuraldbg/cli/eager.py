"""The same script without compilation, in a process of its own, to compare with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from neuraldbg.cli import places
from neuraldbg.cli.launch import Target
from neuraldbg.cli.observe import Wishes
from neuraldbg.cli.output import Notices
from neuraldbg.errors import UsageError

# PyTorch's own switches, of newer and of older versions.
WITHOUT: Final = {"TORCH_COMPILE_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}


def check(rank: int) -> None:
    """See whether a comparison is possible here.

    Raises:
        UsageError: It is not.
    """
    if rank or int(os.environ.get("WORLD_SIZE") or 1) > 1:
        msg = "--compare-eager compares a run in one process; start one rank alone"
        raise UsageError(msg)
    set_off = [name for name in WITHOUT if os.environ.get(name) == "1"]
    if set_off:
        msg = f"{set_off[0]}=1 switches compilation off, so there is nothing to compare; unset it"
        raise UsageError(msg)


def beside(target: Target, wishes: Wishes, notices: Notices) -> Wishes:
    """Run the script in eager mode; the wishes of the compiled run then know its run file."""
    out = _place(target, wishes)
    notices.say(f"running {target.name} without compilation first, to {places.near(out)}")
    words = ["--out", str(out), "--budget", "inf", "--seed", str(wishes.seed), "--quiet"]
    # Its output would be taken for that of the run that counts, which comes second.
    ended = subprocess.run(  # noqa: S603 - the script that the user asked to run
        [sys.executable, "-m", "neuraldbg", "run", *words, *target.command],
        env={**os.environ, **WITHOUT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode:
        notices.say(f"without compilation the script ended with exit code {ended.returncode}")
    return replace(wishes, eager=out)


def _place(target: Target, wishes: Wishes) -> Path:
    """Next to the run file that was asked for, else in the folder of runs."""
    from neuraldbg.store.locate import new_run_id, runs_dir
    from neuraldbg.store.schema import SUFFIX

    if wishes.out is not None:
        return wishes.out.with_name(f"{wishes.out.stem}.eager{SUFFIX}")
    name = new_run_id(f"{Path(target.name).stem}-eager", datetime.now(UTC))
    return Path.cwd() / runs_dir() / f"{name}{SUFFIX}"
