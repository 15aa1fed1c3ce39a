"""`neuraldbg doctor`: what works on this machine, and what does not."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from neuraldbg import __version__
from neuraldbg.cli import output
from neuraldbg.cli.parsing import Parser
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
    parser = Parser("doctor", "Say what works here. Exit 1 if something is in the way.")
    parser.takes_json()
    options = parser.parse_args(words)
    found = list(examine())
    if options.json:
        from neuraldbg.report.json import encode

        output.result(encode([asdict(f) for f in found]) + "\n")
    else:
        output.result("".join(map(_line, found)))
    return int(not all(f.ok for f in found))


def examine() -> Iterator[Finding]:
    """Everything that matters, from the interpreter to the folder of the runs."""
    yield Finding("neuraldbg", __version__)
    yield Finding("python", f"{platform.python_version()} ({platform.system()})")
    yield _sqlite()
    yield from _settings()
    yield from _torch()


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


def _torch() -> Iterator[Finding]:
    if find_spec("torch") is None:
        remedy = f"{sys.executable} -m pip install torch"
        state = "not installed: runs can be read, not recorded"
        yield Finding("torch", state, ok=False, remedy=remedy)
        return
    try:
        yield from _probed(_mechanisms())
    except Exception as error:  # a broken installation is what we look for
        state = f"cannot be used: {type(error).__name__}: {error}"
        remedy = "see whether `python -c 'import torch'` works"
        yield Finding("torch", state, ok=False, remedy=remedy)


def _mechanisms() -> Mapping[str, Any]:
    """What the torch spoke says of itself, or at least torch's version."""
    if find_spec("neuraldbg.torch.doctor") is None:
        import torch

        return {"torch": torch.__version__}
    found: Mapping[str, Any] = import_module("neuraldbg.torch.doctor").probe()
    return found


def _probed(mechanisms: Mapping[str, Any]) -> Iterator[Finding]:
    """What the torch spoke found: a name with True, ok=False, remedy=or a sentence each."""
    for name, state in mechanisms.items():
        said = {True: "works", False: "does not work"}.get(state, str(state))
        yield Finding(name, said, state is not False)


def _line(found: Finding) -> str:
    remedy = f"\n{'':22}-> {found.remedy}" if found.remedy else ""
    return f"{'ok' if found.ok else '!!'}  {found.what:<18}{found.state}{remedy}\n"
