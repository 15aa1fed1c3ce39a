"""SVG as text. Every attribute and every word is escaped here, and nowhere else."""

from __future__ import annotations

from html import escape

from neuraldbg.report.names import plain


def tag(name: str, *inside: str, **attributes: object) -> str:
    """One element.

    Args:
        name: The element.
        inside: Elements that are already text of this kind.
        attributes: By name, `_` for `-`; a trailing `_` is dropped; None leaves one out.

    Example:
        >>> tag("line", x1=0, stroke_width=2, class_="axis")
        '<line x1="0" stroke-width="2" class="axis"/>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_written(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{said}>{''.join(inside)}</{name}>" if inside else f"<{name}{said}/>"


def words(text: object) -> str:
    """Text from anywhere, as one printable line that cannot become markup."""
    return escape(plain(text), quote=True)


def label(text: object, x: float, y: float, **attributes: object) -> str:
    """Text at a place."""
    return tag("text", words(text), x=x, y=y, **attributes)


def picture(
    kind: str, name: str, size: tuple[float, float], title: str, description: str, inside: str
) -> str:
    """A whole picture, with what it shows in words for those who cannot see it.

    Args:
        kind: A class name.
        name: Unique on its page.
        size: Width and height.
        title: What it is.
        description: What it shows.
        inside: Its elements.
    """
    width, height = size
    return tag(
        "svg",
        tag("title", words(title), id=f"{name}-title"),
        tag("desc", words(description), id=f"{name}-desc"),
        inside,
        xmlns="http://www.w3.org/2000/svg",
        id=name,
        class_=f"picture {kind}",
        viewBox=f"0 0 {_written(width)} {_written(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def _written(value: object) -> str:
    """Numbers without digits that nobody sees; anything else as one printable line."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return plain(value)
