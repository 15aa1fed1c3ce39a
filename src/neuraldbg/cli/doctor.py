"""`neuraldbg doctor`: what works on this machine, and what was seen of a run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from neuraldbg import __version__
from neuraldbg.cli import output, places
from neuraldbg.cli.parsing import RUN_HELP, Parser
from neuraldbg.config import DIR, MODE, STRICT, Config
from neuraldbg.errors import UsageError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: Its name.
        state: What was found.
        ok: False if NeuralDBG cannot do its work because of it.
        remedy: What to do about it.
    """

    what: str
    state: str
    ok: bool = True
    remedy: str = ""


def main(words: Sequence[str]) -> int:
    """Print the findings; exit 1 if one of them is in the way."""
    parser = Parser(
        "doctor", "Say what works here, or what was seen of a run. Exit 1 if something is missing."
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help=RUN_HELP)
    parser.add_argument("--fresh", action="store_true", help="try torch again, do not remember")
    parser.takes_json()
    options = parser.parse_args(words)
    if options.run is not None:
        return _of_run(options.run, as_json=options.json)
    found = list(examine(fresh=options.fresh))
    if options.json:
        from neuraldbg.report.json import encode

        output.result(encode([asdict(f) for f in found]) + "\n")
    else:
        output.result("".join(map(_line, found)))
    return int(not all(f.ok for f in found))


def _of_run(name: str, *, as_json: bool) -> int:
    from neuraldbg.cli import covered

    if name.endswith(".py"):
        msg = (
            f"{name} must be run to see what it calls: `neuraldbg run {name}`, then "
            "`neuraldbg doctor last`"
        )
        raise UsageError(msg)
    return covered.show(name, as_json=as_json)


def examine(*, fresh: bool = False) -> Iterator[Finding]:
    """Everything that matters, from the interpreter to the folder of the runs.

    Args:
        fresh: Whether to try torch again, though it was tried before.
    """
    yield Finding("neuraldbg", __version__)
    yield Finding("python", f"{platform.python_version()} ({platform.system()})")
    yield _sqlite()
    yield from _settings()
    yield from _torch(fresh=fresh)


def _sqlite() -> Finding:
    import sqlite3
    from tempfile import TemporaryDirectory

    name = f"sqlite {sqlite3.sqlite_version}"
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        connection = sqlite3.connect(Path(folder) / "probe.db")
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        connection.close()
    if mode == "wal":
        return Finding(name, "write-ahead log works")
    remedy = "a run that is cut off may lose its last steps"
    return Finding(name, f"journal mode is {mode}", ok=False, remedy=remedy)


def _settings() -> Iterator[Finding]:
    for name in (MODE, DIR, STRICT):
        yield Finding(name, os.environ.get(name) or "not set")
    try:
        config = Config.from_env()
    except UsageError as error:
        yield Finding("settings", str(error), ok=False, remedy="correct the variable")
    else:
        if config.off:
            yield Finding("settings", f"{MODE} switches NeuralDBG off")
        yield _folder(config.directory)


def _folder(folder: Path) -> Finding:
    """Whether runs can be written; nothing is left behind."""
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if _writable(there):
        state = "writable" if there == folder.absolute() else "will be created"
        return Finding("runs", f"{folder}: {state}")
    state = f"{folder}: cannot be written"
    remedy = f"set {DIR} to a folder you may write to"
    return Finding("runs", state, ok=False, remedy=remedy)


def _writable(folder: Path) -> bool:
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _torch(*, fresh: bool) -> Iterator[Finding]:
    if find_spec("torch") is None:
        remedy = f"{sys.executable} -m pip install torch"
        state = "not installed: runs can be read, not recorded"
        yield Finding("torch", state, ok=False, remedy=remedy)
        return
    try:
        yield from _probed(_remembered(fresh=fresh))
    except Exception as error:  # a broken installation is what we look for
        state = f"cannot be used: {type(error).__name__}: {error}"
        remedy = "see whether `python -c 'import torch'` works"
        yield Finding("torch", state, ok=False, remedy=remedy)


def _remembered(*, fresh: bool) -> Mapping[str, Any]:
    """The outcome for this torch: what was found before, or what is found now."""
    key = f"neuraldbg {__version__}, torch {version('torch')}, python {platform.python_version()}"
    known = _cache()
    if not fresh and key in known:
        return {"torch": f"{version('torch')} (tried before; --fresh tries again)", **known[key]}
    found = {"torch": version("torch"), **_mechanisms()}
    if all(state is True for name, state in found.items() if name != "torch"):
        _remember({**known, key: {k: v for k, v in found.items() if k != "torch"}})
    return found


def _place() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "neuraldbg" / "doctor.json"


def _cache() -> dict[str, dict[str, Any]]:
    try:
        known: dict[str, dict[str, Any]] = json.loads(_place().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(known: dict[str, dict[str, Any]]) -> None:
    """Keep what works; where that cannot be written, it is tried again next time."""
    with contextlib.suppress(OSError):
        _place().parent.mkdir(parents=True, exist_ok=True)
        places.write(_place(), json.dumps(known, indent=2))


def _mechanisms() -> Mapping[str, Any]:
    """What the torch spoke finds when it tries its mechanisms on a tiny model."""
    found: Mapping[str, Any] = import_module("neuraldbg.torch.doctor").probe()
    return found


def _probed(mechanisms: Mapping[str, Any]) -> Iterator[Finding]:
    """A line for each mechanism, which works or tells in a sentence what happened."""
    for name, state in mechanisms.items():
        if name == "torch" or state is True:
            yield Finding(name, "works" if state is True else str(state))
        else:
            remedy = "`neuraldbg run` says in its report what it could not see because of this"
            yield Finding(name, f"does not work: {state}", ok=False, remedy=remedy)


def _line(found: Finding) -> str:
    remedy = f"\n{'':22}-> {found.remedy}" if found.remedy else ""
    return f"{'ok' if found.ok else '!!'}  {found.what:<18}{found.state}{remedy}\n"
