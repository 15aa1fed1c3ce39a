"""One HTML file: the answer first, then everything it rests on. Nothing is loaded from anywhere.

Templates by Jinja2 with autoescape; pictures by `report.charts`. The same run gives the same
bytes: no clock, no random id, no set is iterated.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.record import Record
from neuraldbg.report.charts import alone
from neuraldbg.report.html.content import content
from neuraldbg.report.json import clean

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE: Final = Path(__file__).parent


def render(record: Record, diagnosis: Diagnosis, run: str | None = None) -> str:
    """The report as one page.

    Args:
        record: What was observed.
        diagnosis: What was concluded from it.
        run: How to name the run in commands; its id by default.
    """
    return page("report.html.j2", scripts=("report.js",), **content(record, diagnosis, run))


def page(template: str, *, scripts: tuple[str, ...], network: bool = False, **more: Any) -> str:  # noqa: ANN401 - for the template
    """A page with its style and scripts inside, under a policy that lets nothing else run.

    Args:
        template: Its name.
        scripts: Names of the scripts, in order.
        network: Whether it may ask its own server; a file may ask nobody.
        more: For the template.
    """
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in scripts)
    style = _style()
    asks = " connect-src 'self';" if network else ""
    own = "'self'" if network else "'none'"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}';"
        f" img-src data:;{asks} base-uri 'none'; form-action {own}"
    )
    chosen = _environment().get_template(template)
    return chosen.render(script=script, style=style, policy=policy, **more)


def embedded(data: object) -> str:
    r"""JSON that cannot end the element it stands in.

    Example:
        >>> embedded("</b>")
        '"\\u003c/b\\u003e"'
    """
    text = json.dumps(clean(data), allow_nan=False, separators=(",", ":"))
    for special in "<>&":
        text = text.replace(special, f"\\u{ord(special):04x}")
    return text


@cache
def _style() -> str:
    return (
        (_HERE / "report.css").read_text(encoding="utf-8")
        + alone.style()
        + "@media screen and (prefers-color-scheme: dark) {\n"
        + (_HERE / "dark.css").read_text(encoding="utf-8")
        + alone.dark()
        + "}\n"
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from neuraldbg.report.names import plain

    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Control characters and line separators of a name are shown, never sent.
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    made.filters["embedded"] = embedded
    return made


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
