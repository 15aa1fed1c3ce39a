"""Waiting for the script to import torch.

Importing torch ahead of the script would change what it does: a script may set
`OMP_NUM_THREADS` and its like first, and one that needs no torch should not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def upon(module: str, act: Callable[[], None]) -> None:
    """Call `act` as soon as the module is imported; at once if it already is.

    Args:
        module: Name of a top-level module.
        act: Called within the import, after the module is complete.
    """
    if module in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Lookout(module, act))


class _Lookout(MetaPathFinder):
    """Finds nothing itself; sees to it that the module's own loader calls us once.

    A spec may be asked for long before the import, to see whether the module is there.
    """

    def __init__(self, module: str, act: Callable[[], None]) -> None:
        self._module = module
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec as the others find it, its loader prepared."""
        if fullname != self._module:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._prepare(spec.loader)
                return spec
        return None

    def _prepare(self, loader: Loader) -> None:
        """Have the loader tell us after it has executed its module."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._act()

        loader.exec_module = exec_module  # type: ignore[method-assign]
