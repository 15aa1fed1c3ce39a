"""Finding the user's models and optimizers: who owns these parameters?"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from neuraldbg.torch.compile import unwrap

T = TypeVar("T")


def living(kind: type[T]) -> list[T]:
    """Every object of a class of Python's own making that is alive in the process.

    `type(x)` and not `isinstance`: the latter runs code of foreign objects.

    Objects are not asked for with `gc.get_objects`: its list also holds tuples that another
    thread is still filling, and CPython refuses to go on with a tuple that somebody else holds
    ("bad argument to internal function"). Whoever refers to the classes is another matter; an
    instance refers to its own (https://docs.python.org/3.11/whatsnew/3.9.html).
    """
    there = _classes_in_use()
    classes = {id(c): c for c in _classes(kind) if id(c) in there}
    return [x for x in gc.get_referrers(*classes.values()) if issubclass(type(x), kind)]


def _classes_in_use() -> frozenset[int]:
    """The ids of all classes that have instances.

    One call to C code, in which no other thread runs, makes the list of all objects, looks
    through it, and drops it.
    """
    return frozenset(map(id, map(type, chain.from_iterable(map(gc.get_objects, (None,))))))


def _classes(kind: type) -> Iterator[type]:
    """A class and all that derive from it, some of them more than once."""
    yield kind
    derived: type
    for derived in type.__subclasses__(kind):
        yield from _classes(derived)


def optimizers_of(params: Iterable[Tensor]) -> list[Optimizer]:
    """The optimizers that hold any of the parameters."""
    wanted = {id(p) for p in params}
    groups = ((o, g) for o in living(Optimizer) for g in getattr(o, "param_groups", ()))
    found = (o for o, group in groups if any(id(p) in wanted for p in group["params"]))
    return list({id(o): o for o in found}.values())


def owners(params: Iterable[Tensor]) -> list[nn.Module]:
    """The outermost modules that own any of the parameters, unwrapped.

    A module that is a child of no other owner is outermost; compiled and parallel
    wrappers are looked through.
    """
    wanted = {id(p) for p in params}
    owning = [x for x in living(nn.Module) if any(id(p) in wanted for p in _own(x))]
    children = {id(c) for x in owning for c in x._modules.values() if c is not None}
    outermost = [unwrap(x) for x in owning if id(x) not in children]
    return list({id(x): x for x in outermost}.values())


def _own(module: nn.Module) -> Iterable[Tensor]:
    # A module whose class has not finished its constructor has no parameters yet.
    return module.parameters() if "_modules" in vars(module) else ()


def variable_name(model: nn.Module) -> str | None:
    """The name that the user's script gave a model, if it is a global there."""
    main = sys.modules.get("__main__")
    for name, value in list(vars(main).items()) if main is not None else ():
        if isinstance(value, nn.Module) and not name.startswith("_") and unwrap(value) is model:
            return name
    return None


def hidden_name(model: nn.Module, param: Tensor) -> str | None:
    """Where a model keeps a parameter that it does not register.

    Looks into plain lists, tuples and dicts, and plain attributes, of its modules: the
    classic place is a Python list of layers.
    """
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key in ("_modules", "_parameters", "_buffers"):
                continue
            found = _search(value, param, key, depth=2)
            if found:
                return f"{name}.{found}" if name else found
    return None


def _search(value: object, param: Tensor, path: str, depth: int) -> str | None:
    if value is param:
        return path
    if isinstance(value, nn.Module):
        for name, own in value.named_parameters():
            if own is param:
                return f"{path}.{name}"
        return None
    if depth == 0:
        return None
    items = enumerate(value) if isinstance(value, (list, tuple)) else ()
    pairs = value.items() if isinstance(value, dict) else items
    for key, inner in list(pairs)[:256]:
        found = _search(inner, param, f"{path}.{key}", depth - 1)
        if found:
            return found
    return None
