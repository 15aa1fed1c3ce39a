"""The matrix in the documentation is the one that is tested."""

from __future__ import annotations

from pathlib import Path

from .patterns import PATTERNS, Pattern

PAGE = Path(__file__).parents[2] / "docs" / "compiler.md"


def row(name: str, pattern: Pattern) -> str:
    compiled = "left to eager mode by PyTorch" if pattern.skipped else "passes"
    gaps = [*pattern.gaps, *(f"{gap} (compiled)" for gap in pattern.compiled_gaps)]
    return f"| {name} | passes | {compiled} | {'; '.join(gaps)} |"


def table() -> str:
    head = "| pattern | eager | compiled | reported as not observed |\n|---|---|---|---|\n"
    return head + "".join(f"{row(*item)}\n" for item in PATTERNS.items())


def test_the_table_is_the_matrix() -> None:
    """Print `table()` and put it into the page where this fails."""
    assert table() in PAGE.read_text(encoding="utf-8")
