"""What `torch.compile` changes: wrappers, names, and hooks that come too late."""

from __future__ import annotations

import inspect
import os
import re
import sys
from types import CodeType
from typing import Any, Final

from torch import nn

# Attributes under which wrappers keep the user's own module.
INSIDE: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
PARALLEL: Final = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
SWITCHES: Final = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")  # newer, older
_NUMBERS: Final = re.compile(r"\d+")


def inside(module: nn.Module) -> nn.Module | None:
    """The user's own module, if this one is a wrapper around it."""
    parts = module._modules  # TorchScript has a class of its own for it
    return next((parts[k] for k in INSIDE if k in parts and parts[k] is not None), None)


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module inside compiled and parallel wrappers."""
    while True:
        inner = inside(model)
        if inner is None and type(model).__name__ in PARALLEL:
            inner = model._modules.get("module")
        if inner is None:
            return model
        model = inner


def own_name(name: str) -> str:
    """A dotted name without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in INSIDE)


def is_switched_off() -> bool:
    """Whether the environment makes `torch.compile` do nothing."""
    return any(os.environ.get(name) == "1" for name in SWITCHES)


def is_compiled(model: nn.Module) -> bool:
    """Whether any part of the model runs compiled, as far as the model itself shows."""
    return not is_switched_off() and any(
        getattr(m, "_compiled_call_impl", None) is not None or "_orig_mod" in m._modules
        for m in model.modules()
    )


def rearm(model: nn.Module) -> None:
    """Make code that was compiled before our hooks came see them.

    A compiled function ignores hooks installed after its first call. Whatever was compiled
    with a module of this model in it guards on the module's class: the model's own forward
    functions, what is left of them after a graph break, and functions of the user's that
    call the model. Forgetting their compiled versions makes the next call compile again,
    with the hooks; nothing else that was compiled is touched.
    """
    if "torch._dynamo" not in sys.modules:
        return
    from torch._dynamo.convert_frame import input_codes
    from torch._dynamo.eval_frame import reset_code  # type: ignore[attr-defined]

    kinds = {type(m) for m in model.modules() if not _is_torchs_layer(m)} | {type(model)}
    marks = {str(id(kind)) for kind in kinds}
    for code in [ref() for ref in input_codes.seen]:
        if code is not None and _guards_on(code, marks):
            reset_code(code)


def _is_torchs_layer(module: nn.Module) -> bool:
    """Whether it is one of the layers that every other model has too."""
    leaf = next(module.children(), None) is None
    return leaf and type(module).__module__.startswith("torch.nn.")


def _guards_on(code: CodeType, marks: set[str]) -> bool:
    """Whether a compiled version of this code is for objects of one of these classes."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

    return any(
        not marks.isdisjoint(_NUMBERS.findall(guard))
        for entry in _debug_get_cache_entry_list(code)
        for guard in entry.guard_manager.code_parts
        if guard.startswith("___check_type_id")
    )


def backend_of(model: nn.Module) -> str | None:
    """The backend's name, where the wrapper or the model compiled in place tells it."""
    found = (_backend(callback) for m in model.modules() if (callback := _callback(m)) is not None)
    return next((name for name in found if name is not None), None)


def _callback(module: nn.Module) -> Any:  # noqa: ANN401 - an object of Dynamo's own
    compiled = getattr(module, "_compiled_call_impl", None)
    if inspect.isfunction(compiled):
        return inspect.getclosurevars(compiled).nonlocals.get("callback")
    return getattr(getattr(module, "dynamo_ctx", None), "callback", None)


def _backend(callback: Any) -> str | None:  # noqa: ANN401
    for _ in range(8):
        name = getattr(callback, "compiler_name", None)
        if isinstance(name, str):
            return name
        callback = getattr(callback, "_torchdynamo_orig_backend", None) or getattr(
            callback, "_torchdynamo_orig_callable", None
        )
    return None
