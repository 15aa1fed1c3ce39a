"""Keeping Dynamo away from our own Python code.

Between two graphs of a model that cannot be compiled in one piece, Dynamo goes on to
compile every Python function that runs, also ours, which then would see tracers instead
of tensors, or break the user's graph once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Function = Callable[..., Any]


def skip(functions: Iterable[Function]) -> None:
    """Run these functions as they are, outside of graphs; what they call is up to Dynamo."""
    from torch._dynamo import eval_frame

    for function in functions:
        eval_frame.skip_code(function.__code__)


def skip_all(functions: Iterable[Function]) -> None:
    """Run these functions and all that they call as they are, outside of graphs."""
    from torch._C._dynamo import eval_frame

    try:
        both = eval_frame._FrameExecStrategy(
            eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP
        )
    except AttributeError:  # a torch that can only skip functions one by one
        skip(functions)
        return
    for function in functions:
        eval_frame.set_code_exec_strategy(function.__code__, both)


def disable(functions: Iterable[Function]) -> None:
    """Skip these functions and all that they call; where one is met in a graph, it ends it."""
    functions = tuple(functions)
    skip_all(functions)
    for function in functions:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
