"""Which modules importing something brings along, asked of a fresh interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

_SCRIPT = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
json.dump(sorted({name.partition(".")[0] for name in sys.modules}), sys.stdout)
"""


def brought_along(names: Iterable[str], *, path: str | None = None) -> frozenset[str]:
    """The top-level modules that are loaded once `names` are imported.

    Args:
        names: Modules to import, in a process of their own.
        path: A further folder to import from.
    """
    environment: Mapping[str, str] = {**os.environ, **({"PYTHONPATH": path} if path else {})}
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *names],
        capture_output=True,
        check=False,
        text=True,
        env=environment,
    )
    assert ended.returncode == 0, ended.stderr
    return frozenset(json.loads(ended.stdout))
