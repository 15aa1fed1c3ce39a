"""Write the reference of root causes from their declarations.

The page `causes.md` includes what this writes. Run by the documentation build, or by hand:

    python docs/generate_causes.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from neuraldbg.core.causes import Cause, all_causes

TARGET = Path(__file__).parents[1] / "build" / "generated" / "causes.md"


def page(causes: Iterable[Cause]) -> str:
    """The reference in Markdown, one section for each family, in order of name."""
    ordered = sorted(causes, key=lambda cause: (cause.family, cause.id))
    lines: list[str] = []
    for family, members in groupby(ordered, key=lambda cause: cause.family):
        lines += [f"## {family.replace('_', ' ').capitalize()}", ""]
        for cause in members:
            lines += section(cause)
    return "\n".join(lines)


def section(cause: Cause) -> Iterator[str]:
    """One cause: what it is, how it shows, and what to do."""
    yield from (f"### `{cause.id}`", "", plain(cause.title), "")
    if cause.chain:
        yield from (f"{i}. {plain(link)}" for i, link in enumerate(cause.chain, start=1))
        yield ""
    yield from (f"**What to change.** {plain(cause.repair)}", "")
    if cause.experiment:
        yield from (f"**The change that tests it.** {plain(cause.experiment)}", "")
    if cause.rivals:
        yield from ("**Not to be confused with**", "")
        yield from (f"- `{name}`: {plain(text)}" for name, text in sorted(cause.rivals.items()))
        yield ""
    if cause.references:
        yield from (f"**References.** {plain('; '.join(cause.references))}", "")


def plain(text: str) -> str:
    """Text in which Markdown sees no markup."""
    for mark in "\\`*_<>[]{}$|":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def main() -> None:
    """Write the page, if it has changed."""
    text = page(all_causes().values())
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
