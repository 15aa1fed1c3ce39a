"""A picture as a file of its own: with its colours inside, and as PNG."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from neuraldbg.errors import MissingExtraError

_ZOOM: Final = 2.0  # pixels for each unit: sharp on screens of today
_HERE: Final = Path(__file__).parent


@cache
def style() -> str:
    """The rules for pictures, with variables, so that a page can give them other colours."""
    return (_HERE / "picture.css").read_text(encoding="utf-8")


@cache
def dark() -> str:
    """The variables of the dark scheme."""
    return (_HERE / "dark.css").read_text(encoding="utf-8")


def svg(picture: str) -> str:
    """A picture with its style inside, in the light scheme, on white paper."""
    head, _, rest = picture.partition(">")
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{head}><style>{_settled()}</style>{paper}{rest}\n"


def png(picture: str) -> bytes:
    """A picture as PNG.

    Raises:
        MissingExtraError: resvg is not installed.
    """
    try:
        import resvg_py
    except ImportError as error:
        msg = "PNG needs resvg: pip install 'neuraldbg[export]'; --format svg needs nothing"
        raise MissingExtraError(msg) from error
    return bytes(resvg_py.svg_to_bytes(svg_string=svg(picture), zoom=_ZOOM))


@cache
def _settled() -> str:
    """The rules with each variable replaced by its value: not every program knows variables."""
    rules = style()
    values = dict(re.findall(r"(--[\w-]+): ([^;]+);", rules))
    rules = re.sub(r"\s*--[\w-]+: [^;]+;", "", rules)
    return re.sub(r"var\((--[\w-]+)\)", lambda found: values[found[1]], rules)
