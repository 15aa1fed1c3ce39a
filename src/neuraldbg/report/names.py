"""Names and sentences, made fit for people: one line, printable, and not too many."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

_RANGE = 3  # fewer neighbours than this are named one by one


def plain(text: object) -> str:
    r"""One line of printable text: whitespace collapsed, control characters escaped.

    Example:
        >>> plain("a\x1b[31m  b")
        'a\\x1b[31m b'
    """
    line = " ".join(str(text).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def place(name: str) -> str:
    """A module's or parameter's name; the root module has an empty one."""
    return plain(name) or "the whole model"


def collapse(names: Iterable[str]) -> list[str]:
    """Names in order of first appearance, runs of neighbouring layers as one range.

    Example:
        >>> collapse(["b.0.w", "b.1.w", "b.2.w", "head"])
        ['b.0.w ... b.2.w (3)', 'head']
    """
    groups: dict[object, list[tuple[int, str]]] = {}
    for name in dict.fromkeys(names):
        key, number = family(name)
        groups.setdefault(key, []).append((number, name))
    return [shown for members in groups.values() for shown in _ranges(sorted(members))]


def family(name: str) -> tuple[tuple[str, str] | str, int]:
    """What is left of a name without its first number, and that number.

    Example:
        >>> family("blocks.3.mlp")
        (('blocks', 'mlp'), 3)
    """
    parts = name.split(".")
    for i, part in enumerate(parts):
        if part.isdecimal() and part.isascii() and len(part) < 10:
            return (".".join(parts[:i]), ".".join(parts[i + 1 :])), int(part)
    return name, 0


def _ranges(members: Sequence[tuple[int, str]]) -> list[str]:
    out: list[str] = []
    start = 0
    for i in range(1, len(members) + 1):
        if i < len(members) and members[i][0] == members[i - 1][0] + 1:
            continue
        out += _range([place(name) for _, name in members[start:i]])
        start = i
    return out


def _range(names: list[str]) -> list[str]:
    if len(names) < _RANGE:
        return names
    lead, _, last = names[-1].rpartition(" ")
    same = names[0].rpartition(" ")[0] == lead
    return [f"{names[0]} ... {last if same else names[-1]} ({len(names)})"]


def listing(names: Iterable[str], most: int = 4) -> str:
    """A short enumeration: collapsed, at most so many, the rest counted.

    Example:
        >>> listing(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    shown = collapse(names)
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def command_line(command: Sequence[str]) -> str:
    """A command as it would be typed."""
    return plain(shlex.join(command))


def count(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> count(1, "step"), count(2000, "step")
        ('1 step', '2,000 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
