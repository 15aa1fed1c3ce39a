"""What `torch.compile` changes: wrappers, names, and hooks that come too late."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Final

from torch import nn

# Attributes under which wrappers keep the user's own module.
INSIDE: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
PARALLEL: Final = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


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


def is_compiled(model: nn.Module) -> bool:
    """Whether any part of the model runs compiled, as far as the model itself shows."""
    return any(
        getattr(m, "_compiled_call_impl", None) is not None or "_orig_mod" in m._modules
        for m in model.modules()
    )


def rearm(model: nn.Module) -> None:
    """Make code that was compiled before our hooks came see them.

    A compiled function ignores hooks installed after its first call. Forgetting the
    compiled versions of the forward functions of this model's classes makes the next call
    compile again, with the hooks; nothing else that was compiled is touched.
    """
    if "torch._dynamo" not in sys.modules:
        return
    from torch._dynamo.eval_frame import reset_code  # type: ignore[attr-defined]

    for code in {_code(type(m)) for m in model.modules()} - {None}:
        reset_code(code)
    if _is_torchs_own(model) or any(_is_torchs_own(inside(m)) for m in model.modules()):
        from torch._dynamo.external_utils import wrap_inline

        reset_code(wrap_inline(rearm).__code__)


def _is_torchs_own(module: nn.Module | None) -> bool:
    """Whether Dynamo compiles a module such as `nn.Sequential` in a frame of its own making."""
    return module is not None and type(module).__module__.startswith("torch.")


def _code(kind: type[nn.Module]) -> Any:  # noqa: ANN401 - a code object, or None
    return getattr(inspect.getattr_static(kind, "forward", None), "__code__", None)


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
