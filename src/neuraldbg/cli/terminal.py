"""Colours for a terminal: the same words as in a pipe."""

from __future__ import annotations

import os
import sys
from io import StringIO
from typing import Final, TextIO

from neuraldbg.cli import output

_STYLES: Final = (
    (r"(?m)^(FAILED|NOTHING SEEN)(?=:)", "bold red"),
    (r"(?m)^SUSPECT(?=:)", "bold yellow"),
    (r"(?m)^HEALTHY(?=:)", "bold green"),
    (r"(?m)^(Cause|Where|Since|Sure|Tested|Loss|Layers|Events|Best|Cost)(?=  )", "bold"),
    (r"(?m)^(Fault \d+ of \d+|Why we think so|What [a-z ]+|How it led there|Go on with)$", "bold"),
    (r"(?m)^(Optimizers|Loss|Losses|Curves|Diagnosis|Settings|[A-Z]{2,}(  +[A-Z]+)+)$", "bold"),
    (r"(?m)^(A|B)(?=: )", "bold"),
    (r"(?m)^They (part|agree|cannot be compared)\b", "bold"),
    (r"(?m)^-+ NeuralDBG -.*$", "dim"),
    (r"(?m)^  neuraldbg .*$", "cyan"),
    (r"\[[a-z_]+\](?=$|\s)", "magenta"),
    (r"[▁▂▃▄▅▆▇█]+", "cyan"),
    (r"\b(nan|NaN|inf|nonfinite|exploding|vanishing|dead)\b", "red"),
)


def result(text: str) -> None:
    """Write a report to stdout, in colours where a person reads it and rich is installed."""
    output.result(painted(text) if wanted(sys.stdout) else text)


def painted(text: str) -> str:
    """The text with the escapes of its colours; as it is, where rich is not installed."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return text
    styled = Text(text)
    for pattern, style in _STYLES:
        styled.highlight_regex(pattern, style)
    written = StringIO()
    console = Console(file=written, force_terminal=True, highlight=False)
    console.print(styled, end="", soft_wrap=True)
    return written.getvalue()


def wanted(stream: TextIO | None) -> bool:
    """Whether a person reads it, on a terminal that can show colours, and wants them."""
    try:
        return stream is not None and stream.isatty() and colours_wanted()
    except ValueError:  # closed
        return False


def colours_wanted() -> bool:
    """A terminal that can show colours, and a user who did not say no (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
