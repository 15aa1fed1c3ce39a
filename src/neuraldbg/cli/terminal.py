"""Colours for a terminal: the same words as in a pipe, never more and never fewer."""

from __future__ import annotations

import os
import sys
from typing import Final

from neuraldbg.cli import output

_STYLES: Final = (
    (r"\A(FAILED|NOTHING SEEN)", "bold red"),
    (r"\ASUSPECT", "bold yellow"),
    (r"\AHEALTHY", "bold green"),
    (r"(?m)^(Cause|Where|Since|Sure|Tested)(?=  )", "bold"),
    (r"(?m)^(Fault \d+ of \d+|Why we think so|What [a-z ]+|How it led there|Go on with)$", "bold"),
    (r"(?m)^(Optimizers|Losses|Curves|[A-Z]{2,}(  +[A-Z]+)+)$", "bold"),
    (r"(?m)^  neuraldbg .*$", "cyan"),
    (r"\[[a-z_]+\](?=$|\s)", "magenta"),
    (r"\b(nan|NaN|inf|nonfinite|exploding|vanishing|dead)\b", "red"),
)


def result(text: str) -> None:
    """Write a report to stdout, in colours where a person reads it and rich is installed."""
    if not wanted():
        output.result(text)
        return
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        output.result(text)
        return
    styled = Text(text)
    for pattern, style in _STYLES:
        styled.highlight_regex(pattern, style)
    Console(file=sys.stdout, highlight=False).print(styled, end="", soft_wrap=True)


def wanted() -> bool:
    """A terminal that can show colours, and a user who did not say no (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()
