"""`neuraldbg run`: a training script, as it is, under observation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from neuraldbg.cli import eager, launch, places
from neuraldbg.cli.launch import Target
from neuraldbg.cli.observe import Observation, Wishes
from neuraldbg.cli.output import Notices
from neuraldbg.cli.parsing import Parser
from neuraldbg.cli.places import for_rank
from neuraldbg.cli.signals import Terminator
from neuraldbg.config import Config
from neuraldbg.errors import UsageError

_VALUED: Final = ("--json", "--out", "--budget", "--seed")
_SEED: Final = 0  # of a comparison: both runs must draw the same numbers
_SQLITE: Final = b"SQLite format 3\x00"
_USAGE: Final = "neuraldbg run [options] (script.py | -m module) [args ...]"
_MORE: Final = """\
The script runs as with plain Python: same arguments, paths, output and exit code.
Options of NeuralDBG come before the script, all that follows is the script's. The
script owns stdout, so the report goes to stderr, at the script's end, however it ends.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and how to watch it."""

    target: Target
    wishes: Wishes
    off: bool = False
    compare: bool = False


def plan(words: Sequence[str]) -> Plan:
    """Read the words of `run` and see that they can be carried out.

    Raises:
        UsageError: They cannot; nothing has been started.
    """
    ours, target = split(words)
    options = _parser().parse_args(ours)
    if target is None:
        msg = f"no script is named; usage: {_USAGE}"
        raise UsageError(msg)
    config = Config.from_env(strict=options.strict or None, budget=_budget(options.budget))
    launch.check(target)
    wishes = Wishes(
        json=for_rank(_json_file(options.json)),
        out=for_rank(_run_file(options.out)),
        budget=config.budget,
        quiet=options.quiet,
        strict=config.strict,
        seed=options.seed,
        live=options.live,
    )
    if options.compare_eager:
        eager.check(rank=places.rank())
        wishes = replace(
            wishes, budget=float("inf"), seed=_SEED if wishes.seed is None else wishes.seed
        )
    return Plan(target, wishes, config.off, options.compare_eager)


def carry_out(planned: Plan) -> int:
    """Run the script; its exceptions go on, after the diagnosis is written."""
    if planned.off:
        return _bare(planned.target)
    notices = Notices()
    if planned.compare:
        planned = replace(planned, wishes=eager.beside(planned.target, planned.wishes, notices))
    observed = Observation(planned.target.command, planned.wishes, notices)
    try:
        observed.start()
    except UsageError as error:
        notices.say(f"run: {error}")
        return 2
    terminator = Terminator(lambda: observed.finish("interrupted", None))
    terminator.install()
    try:
        launch.execute(planned.target)
    except BaseException as error:
        launch.hide(error)
        finished, cause = _ending(error)
        terminator.finishing(lambda: observed.finish(finished, cause))
        raise
    terminator.finishing(lambda: observed.finish("ok", None))
    return 0


def split(words: Sequence[str]) -> tuple[list[str], Target | None]:
    """Our own options, and the script or module with everything after it.

    Example:
        >>> split(["--quiet", "train.py", "--quiet"])[0]
        ['--quiet']
    """
    ours: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--" and rest:
            word = rest.pop(0)
        elif word in _VALUED:
            ours += [word, *rest[:1]]
            del rest[:1]
            continue
        if word == "-m" or (word.startswith("-m") and len(word) > 2):
            name = word[2:] or (rest.pop(0) if rest else "")
            return ours, _named(Target(name, tuple(rest), module=True))
        if word == "-":
            msg = "a script cannot be read from standard input; write it to a file"
            raise UsageError(msg)
        if not word.startswith("-"):
            return ours, Target(word, tuple(rest))
        ours.append(word)
    return ours, None


def _named(target: Target) -> Target:
    if target.name:
        return target
    msg = f"-m needs the name of a module; usage: {_USAGE}"
    raise UsageError(msg)


def _parser() -> Parser:
    parser = Parser("run", _MORE, usage=_USAGE)
    parser.add_argument("--json", metavar="FILE", help="write the diagnosis there, at any exit")
    parser.add_argument("--out", metavar="PATH", help="write the run file there")
    parser.add_argument(
        "--budget", metavar="FRACTION", type=float, help="share of time to spend (default 0.02)"
    )
    parser.add_argument(
        "--live", action="store_true", help="show the run at the bottom of the terminal"
    )
    parser.add_argument("--quiet", action="store_true", help="one line, and only of a fault")
    parser.add_argument(
        "--strict", action="store_true", help="fail if NeuralDBG cannot observe the script"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, help="seed random, numpy and torch before the script"
    )
    parser.add_argument(
        "--compare-eager",
        action="store_true",
        help="run it without compilation first, and say where the compiled run parts from that",
    )
    return parser


def _budget(share: float | None) -> float | None:
    """A share of time; `--budget 3` is more likely meant as three per cent."""
    if share is None or not 1 < share < float("inf"):
        return share
    msg = (
        f"--budget is a share of the run's time, at most 1, not {share:g}; three per cent are "
        f"0.03, and inf looks at every step whatever it costs"
    )
    raise UsageError(msg)


def _json_file(name: str | None) -> Path | None:
    """Where the diagnosis goes, seen to be possible before hours of training."""
    target = _absolute(name)
    if target is None:
        return None
    if name == "-" or target.suffix == ".py":
        msg = f"--json needs a file to write the diagnosis to, not {name!r}"
        raise UsageError(msg)
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        msg = f"--json: cannot write to {str(target)!r}; name a file in a folder that exists"
        raise UsageError(msg)
    return target


def _run_file(name: str | None) -> Path | None:
    """Where the run file goes; never over a file that is none."""
    target = _absolute(name)
    if target is None or not target.exists():
        return target
    if not target.is_file():
        msg = f"--out: {str(target)!r} is not a file; name the run file itself"
        raise UsageError(msg)
    with target.open("rb") as file:
        head = file.read(len(_SQLITE))
    if head and head != _SQLITE:
        msg = f"--out: {str(target)!r} exists and is no run file; name another"
        raise UsageError(msg)
    return target


def _absolute(name: str | None) -> Path | None:
    """The path, safe from a script that changes its working directory."""
    return None if name is None else Path.cwd() / name


def _ending(error: BaseException) -> tuple[str, BaseException | None]:
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return "ok", None
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "exception", error


def _bare(target: Target) -> int:
    try:
        launch.execute(target)
    except BaseException as error:
        launch.hide(error)
        raise
    return 0
