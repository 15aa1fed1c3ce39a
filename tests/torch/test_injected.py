"""A fault in any function of ours that a training reaches: found by watching, not by a list."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import neuraldbg
from neuraldbg.cli.observe import Observation, Wishes
from neuraldbg.cli.output import Notices
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.errors import ObservationWarning, RunFileError
from neuraldbg.torch import boundaries, loop, taps
from neuraldbg.torch.monitor import NeuralDbg

from .test_guard import BrokenError, run

HOME = str(Path(neuraldbg.__file__).parent)
MADE: list[NeuralDbg] = []
SAMPLE = 16  # one function in so many is broken in every run of the tests, all in the slow ones

# The outermost guards themselves, and what deals with faults: a fault in them has nobody to go
# to. Nothing else is left out.
APART = {
    "_switch", "Config.from_env", "NeuralDbg.__init__",  # bad settings are told to the user
    "NeuralDbg.attach", "NeuralDbg.close", "NeuralDbg.__enter__", "NeuralDbg.__exit__",
    "NeuralDbg.diagnosis", "NeuralDbg.gaps",
    "Faults.__init__", "Faults.fault", "Faults.note", "Faults.gap", "Faults._warn",
    "tell", "_step_begins", "_step_ended",  # they guard the listeners
    "Tap.__call__", "ModuleTap.on_gradient",  # they guard the hooks
}  # fmt: skip


def ours() -> Iterator[FunctionType]:
    """Every function and method of the package that is loaded."""
    for module in [m for n, m in sys.modules.items() if n.partition(".")[0] == "neuraldbg"]:
        for found in vars(module).values():
            yield from functions_of(found, module)


def functions_of(found: object, module: ModuleType) -> Iterator[FunctionType]:
    """A function, or those of a class, that a module defines itself."""
    if getattr(found, "__module__", None) != module.__name__:
        return
    if isinstance(found, type):
        for part in vars(found).values():
            part = getattr(part, "fget", None) or getattr(part, "func", part)
            part = getattr(part, "__func__", part)
            if isinstance(part, FunctionType):
                yield part
    part = getattr(found, "__wrapped__", found)
    if isinstance(part, FunctionType):
        yield part


def called(act: Callable[[], object]) -> set[CodeType]:
    """The code of ours that an act runs, in any thread."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


@cache
def places(act: Callable[[], object]) -> dict[str, FunctionType]:
    """Every function of ours that an act runs, by module and name."""
    act()  # once, for what is imported on the way
    codes = called(act)
    reached = {f.__code__: f for f in ours() if f.__code__ in codes}.values()
    named = {f"{f.__module__}:{f.__qualname__}": f for f in reached if f.__qualname__ not in APART}
    return dict(sorted(named.items()))


def raising(code: CodeType, hits: list[None]) -> CodeType:
    """Code that counts and raises, for a function with the same closure."""
    free = ", ".join(code.co_freevars)
    source = (
        f"def outer({free}):\n"
        "    def inner(*args, **kwargs):\n"
        f"        ({free})\n"
        "        hits = 'hits'\n"
        "        hits.append(None)\n"
        "        error = 'error'\n"
        "        raise error('on purpose')\n"
        "    return inner\n"
    )
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102 - the text above
    made: CodeType = space["outer"](*code.co_freevars).__code__
    meant = {"error": BrokenError, "hits": hits}
    return made.replace(co_consts=tuple(meant.get(c, c) for c in made.co_consts))


@contextmanager
def broken(function: FunctionType) -> Iterator[list[None]]:
    """A function that raises, for everybody who holds it; gives a list as long as the calls.

    Where the end of a watch was broken, it is ended again without the fault.
    """
    kept = function.__code__
    hits: list[None] = []
    function.__code__ = raising(kept, hits)
    try:
        yield hits
    finally:
        function.__code__ = kept
        for left in [*loop.WATCHES, *boundaries.LISTENERS]:
            loop.WATCHES[:] = [left]
            left.close("ok")
        writers = [made._writer for made in MADE if made._writer is not None]
        for writer in writers:
            writer.close()
        MADE.clear()
        loop.WATCHES.clear()
        for slot in list(taps.SINKS):
            taps.SINKS.pop(slot)
        taps.SWITCH.on = False


def watched(*, strict: bool = False) -> tuple[NeuralDbg, list[float], list[Tensor]]:
    """A training under watch."""

    def watch(model: torch.nn.Module) -> NeuralDbg:
        MADE.append(NeuralDbg(model, budget=float("inf"), strict=strict))
        return MADE[-1]

    losses, params = run(watch)
    return MADE[-1], losses, params


def act() -> None:
    """A training, and its diagnosis."""
    watched()[0].diagnosis()


def whole() -> tuple[list[float], list[Tensor]]:
    """The training as it is without us."""
    return run(lambda _: nullcontext())


def check(name: str, function: FunctionType, expected: tuple[list[float], list[Tensor]]) -> None:
    """Break one function, train, and assert that it did no harm and is told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with broken(function) as hits:
            dbg, losses, params = watched()
            found = dbg.diagnosis()
    assert losses == expected[0], name
    assert all(map(torch.equal, params, expected[1])), name
    assert [w.category for w in told] in ([], [ObservationWarning]), name
    assert found.gaps or not hits, name  # some run once in a process
    if any("BrokenError" in gap.why for gap in dbg.gaps):
        assert told, name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURALDBG_DIR", str(tmp_path))


# The writer's thread may be what is broken: it then dies, which Python tells.
DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@DIES
@pytest.mark.parametrize("every", [SAMPLE, pytest.param(1, marks=pytest.mark.slow)])
def test_a_fault_in_any_function_does_no_harm_and_is_told(every: int) -> None:
    found = places(act)
    assert len(found) > 300  # the search itself works
    expected = whole()
    for name, function in list(found.items())[::every]:
        check(name, function, expected)


@DIES
@pytest.mark.parametrize("every", [SAMPLE, pytest.param(1, marks=pytest.mark.slow)])
def test_under_strict_a_fault_is_raised(every: int) -> None:
    found = [x for x in places(act).items() if x[0].startswith("neuraldbg.torch.")]
    for name, function in found[::every]:
        with warnings.catch_warnings(), broken(function) as hits:
            warnings.simplefilter("ignore")
            try:
                dbg, *_ = watched(strict=True)
            except (BrokenError, RunFileError):
                continue
            assert not hits, f"{name} was broken and nothing was raised: {dbg.gaps}"


def test_a_fault_in_the_report_of_a_script_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    dbg, *_ = watched()
    diagnosis = dbg.diagnosis()

    class Session:
        path = dbg.path

        def finish(self, *_: object) -> Diagnosis:
            return diagnosis

    def tell() -> None:
        observed = Observation(["train.py"], Wishes(), Notices())
        observed._session = Session()
        observed.finish("ok", None)

    found = [x for x in places(tell).items() if x[0].startswith("neuraldbg.report.")]
    assert len(found) > 15
    capsys.readouterr()
    for name, function in found:
        with broken(function):
            tell()
        assert "warning: report failed (BrokenError" in capsys.readouterr().err, name
