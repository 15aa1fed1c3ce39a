"""The line of a training script that a finding is about, where the script itself tells.

Nothing is guessed: an attribute that is assigned once, or a `backward` that is called once,
has a line; anything else has none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

_BACKWARD: Final = "backward"


class Source:
    """A training script, parsed and never run.

    Args:
        text: Its text; one that is not Python has no lines to point at.
    """

    def __init__(self, text: str) -> None:
        try:
            self._tree = ast.parse(text)
        except (SyntaxError, ValueError):
            self._tree = ast.parse("")

    def line(self, where: Sequence[str]) -> int | None:
        """Where the first of these modules is built; without modules, where backward is called.

        Args:
            where: Dotted names of modules or parameters.
        """
        if not where:
            return _only(self._backwards())
        # A parameter's last part is the attribute of torch's own module; its owner is built here.
        parts = [part for part in reversed(where[0].split(".")) if part and not part.isdecimal()]
        return next((line for part in parts if (line := _only(self._built(part)))), None)

    def _built(self, attribute: str) -> Iterator[int]:
        """Lines that assign the result of a call to `self.attribute`."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                targets = [t.attr for t in node.targets if isinstance(t, ast.Attribute)]
                if attribute in targets:
                    yield node.lineno

    def _backwards(self) -> Iterator[int]:
        for node in ast.walk(self._tree):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr == _BACKWARD:
                yield called.end_lineno or called.lineno


def _only(lines: Iterator[int]) -> int | None:
    found = list(lines)
    return found[0] if len(found) == 1 else None
