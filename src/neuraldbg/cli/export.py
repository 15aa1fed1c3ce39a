"""`neuraldbg export`: the numbers, pictures and findings of a run in other formats."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neuraldbg.cli import output, runs
from neuraldbg.cli.parsing import Parser
from neuraldbg.cli.report import save
from neuraldbg.errors import UsageError

if TYPE_CHECKING:
    from neuraldbg.report.sarif import Locate

_MORE: Final = """\
json      everything: the diagnosis, the static facts, and every reading
csv       one line for each reading, or for each event with --table events
parquet   the same as Parquet (needs pyarrow)
mermaid   the causal graph as a flowchart
svg, png  a picture, see --picture; all of them if -o names a folder (PNG needs resvg)
sarif     the findings as SARIF 2.1.0, at their line of the script where it is known
markdown  the report, for a pull request
"""


def main(words: Sequence[str]) -> int:
    """Write the run in a format."""
    options = _parser().parse_args(words)
    name = "json" if options.json else options.format
    if name is None:
        msg = f"name a format: --format {'|'.join(FORMATS)}"
        raise UsageError(msg)
    opened = runs.diagnose(options.run)
    target = None if options.output in (None, "-") else Path(options.output)
    if name in _PICTURES and target is not None and target.is_dir():
        return _all_pictures(opened, name, target)
    content = FORMATS[name](opened, options)
    if target is not None:
        save(target, content)
        output.notice(f"wrote {target}")
    else:
        _print(content)
    return 0


def _parser() -> Parser:
    parser = Parser("export", _MORE)
    parser.takes_run()
    parser.add_argument("--format", choices=FORMATS, help="see above")
    parser.add_argument("-o", "--output", metavar="PATH", help="where to (default: stdout)")
    parser.add_argument(
        "--table", choices=("readings", "events"), default="readings", help="for csv and parquet"
    )
    parser.add_argument("--picture", metavar="NAME", help="for svg and png: loss, gradient, ...")
    parser.takes_json()
    return parser


def _json(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report import json

    readings = [
        {"kind": c.kind, "where": c.name, "metric": c.metric, "steps": s.steps.tolist(),
         "values": s.values.tolist()}
        for c, s in opened.record.channels.items()
    ]  # fmt: skip
    data = {
        "diagnosis": json.to_dict(opened.diagnosis),
        "facts": json.facts(opened.record.facts),
        "readings": readings,
    }
    return _text(json.encode(data, indent=None) + "\n")


def _csv(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report import tables

    if options.table == "events":
        return _text(tables.events_csv(opened.diagnosis.events))
    return _text(tables.readings_csv(opened.record))


def _parquet(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report import tables

    if options.table == "events":
        return tables.events_parquet(opened.diagnosis.events)
    return tables.readings_parquet(opened.record)


def _mermaid(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report import mermaid

    return _text(mermaid.render(opened.diagnosis))


def _markdown(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report import markdown

    return _text(markdown.render(opened.diagnosis))


def _sarif(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report import sarif

    return _text(sarif.dumps(opened.diagnosis, _locator(opened)))


def _picture(opened: runs.Opened, options: Namespace) -> bytes:
    from neuraldbg.report.pictures import pictures

    found = dict(pictures(opened.record, opened.diagnosis).named())
    if not found:
        msg = "this run has no readings to draw; `neuraldbg show RUN` says what is known of it"
        raise UsageError(msg)
    name = options.picture or next(iter(found))
    if name not in found:
        msg = f"no picture {name!r} of this run; there are: {', '.join(found)}"
        raise UsageError(msg)
    return _drawn(found[name], options.format)


def _all_pictures(opened: runs.Opened, kind: str, folder: Path) -> int:
    from neuraldbg.report.pictures import pictures

    for name, picture in pictures(opened.record, opened.diagnosis).named():
        save(folder / f"{name}.{kind}", _drawn(picture, kind))
        output.notice(f"wrote {folder / f'{name}.{kind}'}")
    return 0


def _drawn(picture: str, kind: str) -> bytes:
    from neuraldbg.report.charts import alone

    return alone.png(picture) if kind == "png" else _text(alone.svg(picture))


def _locator(opened: runs.Opened) -> Locate:
    """Lines of the training script, if it is there and lies below its working directory."""
    from neuraldbg.report.source import Source

    run = opened.record.facts.run
    folder = Path(run.cwd)
    script = folder / (run.command[0] if run.command else "")
    if not run.cwd or not script.is_file() or not script.is_relative_to(folder):
        return lambda _: None
    source = Source(script.read_text(encoding="utf-8", errors="replace"))
    name = script.relative_to(folder).as_posix()

    def locate(where: Sequence[str]) -> tuple[str, int] | None:
        line = source.line(where)
        return None if line is None else (name, line)

    return locate


def _print(content: bytes) -> None:
    """To stdout; what is no text never to a terminal."""
    try:
        output.result(content.decode("utf-8"))
    except UnicodeDecodeError:
        if sys.stdout.isatty():
            msg = "this format is not text; name a file with -o, or send it through a pipe"
            raise UsageError(msg) from None
        sys.stdout.buffer.write(content)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_PICTURES: Final = ("svg", "png")

FORMATS: Final[dict[str, Callable[[runs.Opened, Namespace], bytes]]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "mermaid": _mermaid,
    "svg": _picture,
    "png": _picture,
    "sarif": _sarif,
    "markdown": _markdown,
}
