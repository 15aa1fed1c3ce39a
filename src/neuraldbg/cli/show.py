"""`neuraldbg show`: the facts and numbers of a run, without judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuraldbg.cli import output, runs, terminal
from neuraldbg.cli.parsing import Parser
from neuraldbg.errors import UsageError

if TYPE_CHECKING:
    from neuraldbg.core.record import Record


def main(words: Sequence[str]) -> int:
    """Print what is known about a run, or about one module or parameter of it."""
    parser = Parser("show", "Show the facts of a run, and its modules in order of execution.")
    parser.takes_run()
    parser.add_argument("--module", metavar="NAME", help="all numbers of one module or parameter")
    parser.add_argument("--events", action="store_true", help="what changed its state, and when")
    parser.takes_json()
    options = parser.parse_args(words)
    if options.events:
        output.result(_events(options.run, options.module, as_json=options.json))
        return 0
    _, record = runs.read(options.run)
    if options.module is not None:
        _known(record, options.module)
    text = _record(record, options.module, as_json=options.json)
    (output if options.json else terminal).result(text)
    return 0


def _record(record: Record, module: str | None, *, as_json: bool) -> str:
    from neuraldbg.cli import facts

    if as_json:
        from neuraldbg.report.json import encode

        return encode(facts.data(record, module)) + "\n"
    return facts.overview(record) if module is None else facts.module(record, module)


def _events(run: str, module: str | None, *, as_json: bool) -> str:
    from neuraldbg.cli.table import short, table

    opened = runs.diagnose(run)
    if module is not None:
        _known(opened.record, module)
    events = [e for e in opened.diagnosis.events if module is None or _within(e.where, module)]
    if as_json:
        from neuraldbg.report.json import encode, event

        return encode([event(e) for e in events]) + "\n"
    rows = [("STEP", "WHERE", "WHAT", "FROM", "TO")]
    for e in events:
        what = e.kind.value.split("_")[0]
        rows.append((str(e.step), short(e.where or "-", 36), what, e.before, e.after))
    return table(rows, right={0}) if events else "No state changed.\n"


def _known(record: Record, name: str) -> None:
    """See that the run has such a module or parameter.

    Raises:
        UsageError: It has not.
    """
    from difflib import get_close_matches

    names = {m.name for m in record.facts.modules} | {p.name for p in record.facts.params}
    names |= {channel.name for channel in record.channels}
    if name in names:
        return
    near = get_close_matches(name, sorted(names), n=3)
    hint = f"; near: {', '.join(near)}" if near else ""
    msg = f"no module or parameter {name!r} in this run{hint}; `neuraldbg show RUN` lists them"
    raise UsageError(msg)


def _within(where: str, module: str) -> bool:
    return not module or where == module or where.startswith(module + ".")
