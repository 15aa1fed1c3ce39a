"""Letting Inductor keep the graphs that have taps in its caches of compiled graphs.

Operators with an ordered effect reach Inductor wrapped in a higher-order operator that
PyTorch does not declare cacheable, so a graph with one tap in it would be compiled anew in
every process. PyTorch has a setting that declares it so. It is set only in steps that are
looked at: in others no graph has taps, and settings are part of the caches' keys, under which
the user's other code is to be found.

Cached code calls our operator by its name and gets the slots as inputs, so it holds nothing
of the process that compiled it.
"""

from __future__ import annotations

import sys
from typing import Final

import torch

from neuraldbg.torch.versions import is_tested

OPERATOR: Final = "torch.ops.higher_order.with_effects"
SETTING: Final = "unsafe_marked_cacheable_functions"

_marked = False


def mark_cacheable(on: bool) -> None:  # noqa: FBT001 - a switch
    """Let what is compiled from now on be cached although it has effects, or no more.

    A mark that the user has set stays. Other releases of torch than those tested may not
    restore effects from their caches: there nothing is marked.
    """
    global _marked
    if on == _marked or not is_tested():
        return
    config = sys.modules.get("torch._inductor.config")
    functions: dict[str, str] | None = getattr(config, SETTING, None)
    if functions is None:
        return
    if on and OPERATOR not in functions:
        setattr(config, SETTING, {**functions, OPERATOR: str(torch.__version__)})
        _marked = True
    elif not on:
        setattr(config, SETTING, {k: v for k, v in functions.items() if k != OPERATOR})
        _marked = False
