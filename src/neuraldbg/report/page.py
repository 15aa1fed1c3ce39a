"""A page of plain text: headings, paragraphs and lists, wrapped to a width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from neuraldbg.report.names import plain

_NARROWEST = 40


class Page:
    """Lines of text, added block by block.

    Args:
        width: Columns; names that are longer than a line are not broken.
    """

    def __init__(self, width: int = 80) -> None:
        self._width = max(width, _NARROWEST)
        self._lines: list[str] = []

    def paragraph(self, text: str, lead: str = "") -> None:
        """A paragraph; lines after the first stand under the text that follows the lead."""
        wrapped = textwrap.wrap(
            plain(text),
            self._width,
            initial_indent=lead,
            subsequent_indent=" " * len(lead),
            break_long_words=False,
            break_on_hyphens=False,
        )
        self._lines += [line.rstrip() for line in wrapped] or [lead.rstrip()]

    def verbatim(self, text: str) -> None:
        """A line that is never wrapped, e.g. a command to copy."""
        self._lines.append(text.rstrip())

    def blank(self) -> None:
        """An empty line, never two in a row."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def section(self, heading: str, items: Iterable[str], *, numbered: bool = False) -> None:
        """A heading with a list below it; nothing at all where the list is empty."""
        entries = list(items)
        if not entries:
            return
        self.blank()
        self.verbatim(heading)
        for number, entry in enumerate(entries, 1):
            self.paragraph(entry, f"  {number}. " if numbered else "  - ")

    def text(self) -> str:
        """The page, ending in one newline."""
        return "\n".join(self._lines).rstrip("\n") + "\n"
