"""Inside a trial: what the script writes stays in the scratch copy.

Files opened for writing, folders made and checkpoints saved outside the scratch copy land
in a mirror below it, and are read back from there. Deleting and renaming outside it is
refused. Code that writes without Python (a database engine, a C library) is not seen.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_WRITES: Final = frozenset("wax+")
_REFUSED: Final = frozenset({"os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree"})
MIRROR: Final = ".redirected"


class Redirect:
    """Keeps the files outside a folder unchanged.

    Args:
        scratch: The folder that may be written.
        home: The user's working directory, of which it is a copy.
        keep: Further paths that may be written, e.g. the run file.

    Attributes:
        moved: Paths that were written to elsewhere.
    """

    def __init__(self, scratch: Path, home: Path, keep: tuple[Path, ...]) -> None:
        self._scratch = os.path.realpath(scratch)
        self._home = os.path.realpath(home)
        self._kept = [os.path.realpath(p) for p in keep]
        # Whatever a library puts into its cache or the temporary folder is no user's file.
        caches = (tempfile.gettempdir(), Path("~/.cache").expanduser(), "/dev", "/proc")
        self._free = [os.path.realpath(p) for p in caches]
        self.moved: dict[str, None] = {}

    def install(self) -> None:
        """Come before every way to write a file; for the rest of the process."""
        builtins.open = self._opener(builtins.open)
        io.open = builtins.open
        os.mkdir = self._maker(os.mkdir)
        sys.addaudithook(self._audit)

    def save(self, torch: Any) -> None:  # noqa: ANN401 - the module
        """Come before `torch.save` and `torch.load`, which open files by themselves."""
        save, load = torch.save, torch.load

        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return save(obj, self.target(f) if _is_path(f) else f, *args, **kwargs)

        def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return load(self.source(f) if _is_path(f) else f, *args, **kwargs)

        torch.save, torch.load = saved, loaded

    def target(self, path: Any) -> str:  # noqa: ANN401
        """Where to write instead."""
        real = os.path.realpath(os.fsdecode(path))
        if self._may(real):
            return os.fsdecode(path)
        mirrored = self._mirror(real)
        os.makedirs(os.path.dirname(mirrored), exist_ok=True)  # noqa: PTH103, PTH120
        self.moved.setdefault(real)
        return mirrored

    def source(self, path: Any) -> Any:  # noqa: ANN401
        """Where to read: from the mirror, if it was written there."""
        mirrored = self._mirror(os.path.realpath(os.fspath(path)))
        return mirrored if os.path.exists(mirrored) else path  # noqa: PTH110

    def _may(self, real: str) -> bool:
        if any(_below(real, folder) for folder in (self._scratch, *self._kept)):
            return True
        # The user's folder may itself lie in the temporary one.
        return not _below(real, self._home) and any(_below(real, f) for f in self._free)

    def _mirror(self, real: str) -> str:
        return os.path.join(self._scratch, MIRROR, real.lstrip(os.sep).replace(":", ""))  # noqa: PTH118

    def _opener(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if _is_path(file):
                name = os.fsdecode(file)
                file = self.target(name) if _WRITES & set(mode) else self.source(name)
            return original(file, mode, *args, **kwargs)

        return opened

    def _maker(self, original: Callable[..., None]) -> Callable[..., None]:
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            real = os.path.realpath(os.fsdecode(path))
            if self._may(real):
                original(path, *args, **kwargs)
            elif not os.path.isdir(self._mirror(real)):  # noqa: PTH112
                # Not `makedirs`: that calls us.
                Path(self._mirror(real)).parent.mkdir(parents=True, exist_ok=True)
                original(self._mirror(real))

        return mkdir

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _REFUSED and args and _is_path(args[0]):
            real = os.path.realpath(os.fsdecode(args[0]))
            if not self._may(real):
                msg = f"a trial of NeuralDBG leaves {real!r} alone: it is no scratch copy"
                raise PermissionError(msg)


def _is_path(value: object) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
