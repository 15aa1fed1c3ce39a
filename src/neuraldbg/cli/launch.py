"""Running a script or module exactly as plain Python would.

`sys.argv`, `sys.path[0]` and the module `__main__` are those of the script, tracebacks
start at the script's own first line, and whatever it raises goes on to the interpreter.
"""

from __future__ import annotations

import builtins
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Final

from neuraldbg.errors import UsageError

_OURS: Final = "neuraldbg.cli"
_run_module: Final[Callable[..., object]] = runpy._run_module_as_main  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Target:
    """What to run: a script's path (or a folder or zip with `__main__.py`) or a module."""

    name: str
    args: tuple[str, ...] = ()
    module: bool = False

    @property
    def command(self) -> list[str]:
        """The words that plain Python would be given."""
        return [*(["-m"] if self.module else []), self.name, *self.args]


def check(target: Target) -> None:
    """See whether there is something to run, before anything is changed.

    Raises:
        UsageError: The script cannot be opened.
    """
    if target.module or _is_package(target.name):
        return
    path = Path(target.name)
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        msg = (
            f"can't open file {str(Path.cwd() / path)!r}: [Errno {error.errno}] {error.strerror}; "
            f"name a script, or a module with `-m`"
        )
        raise UsageError(msg) from error


def execute(target: Target) -> None:
    """Run the target to its end; its exceptions, `SystemExit` too, are left to go on."""
    main = _enter(target)
    if target.module:
        _run_module(target.name)
    elif _is_package(target.name):
        _run_module("__main__", alter_argv=False)
    else:
        exec(_compile(target.name, main), main.__dict__)  # noqa: S102 - this is what it is for


def hide(error: BaseException) -> None:
    """Have the interpreter show the error without our frames, through the script's own hook."""
    clean = _own_frames_removed(error.__traceback__)
    previous = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = previous
        if value is error:
            value.__traceback__ = trace = clean
        previous(kind, value, trace)

    sys.excepthook = show


def _own_frames_removed(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        trace = trace.tb_next
    return trace


def _enter(target: Target) -> ModuleType:
    """Make `__main__`, `sys.argv` and `sys.path` those of the target."""
    main = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    sys.argv[:] = ["-m" if target.module else target.name, *target.args]
    if not sys.flags.safe_path and sys.path:
        sys.path[0] = _first_path(target)
    elif _is_package(target.name) and not target.module:
        sys.path.insert(0, _absolute(target.name))
    return main


def _first_path(target: Target) -> str:
    if target.module:
        return str(Path.cwd())
    if _is_package(target.name):
        return _absolute(target.name)
    return os.path.dirname(os.path.realpath(target.name))  # noqa: PTH120 - as the interpreter does


def _is_package(name: str) -> bool:
    """Whether it is a folder or zip file, which Python runs by its `__main__.py`."""
    return pkgutil.get_importer(name) is not None


def _absolute(name: str) -> str:
    """The path as the interpreter makes it absolute: nothing resolved, nothing normalised."""
    return name if os.path.isabs(name) else os.path.join(Path.cwd(), name)  # noqa: PTH117, PTH118


def _compile(name: str, main: ModuleType) -> CodeType:
    path = _absolute(name)
    compiled = path.endswith(".pyc")
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
    vars(main).update(__file__=path, __cached__=None, __loader__=loader)
    if compiled:
        code = loader.get_code("__main__")
        assert code is not None  # noqa: S101 - only None for loaders of namespace packages
        return code
    # Our own `from __future__` must not reach the script.
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
