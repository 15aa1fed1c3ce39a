"""Columns of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neuraldbg.report.names import plain

_GAP = "  "


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows in columns as wide as their widest cell; the last column is left ragged.

    Args:
        rows: Cells; every row has as many as the first.
        right: Columns to align at their right edge.

    Example:
        >>> print(table([("a", "1"), ("bb", "10")], right={1}), end="")
        a    1
        bb  10
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(_GAP.join(padded).rstrip())
    return "".join(f"{line}\n" for line in lines)


def short(name: str, width: int) -> str:
    """A name cut in the middle to fit: its two ends tell most.

    Example:
        >>> short("encoder.layers.10.attention", 16)
        'encode...tention'
    """
    if len(name) <= width:
        return name
    tail = (width - 3) // 2 + (width - 3) % 2
    return f"{name[: width - 3 - tail]}...{name[len(name) - tail :]}"
