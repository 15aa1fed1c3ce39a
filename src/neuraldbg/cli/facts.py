"""What a record holds, as text and as data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from neuraldbg.cli.table import short, table
from neuraldbg.core import metrics
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.privacy import redact
from neuraldbg.core.record import Record, Series
from neuraldbg.report import json, spark, words
from neuraldbg.report.names import command_line, count, listing, place, plain
from neuraldbg.report.page import Page
from neuraldbg.report.pictures import main_curves
from neuraldbg.report.text import gaps

_KEY: Final = (metrics.ACT_RMS, metrics.GRAD_RMS)
_HEAD: Final = ("METRIC", "LOOKS", "FIRST", "LAST", "MIN", "MAX")
_RIGHT: Final = frozenset({2, 3, 4, 5, 6})


def overview(record: Record) -> str:
    """The run, its optimizers and losses, and the key numbers of each module."""
    page = Page()
    _run(page, record)
    page.section("Optimizers", _optimizers(record))
    page.section("Losses", _losses(record))
    page.section("Curves", _curves(record))
    page.section("What could not be seen", gaps(record.facts.gaps))
    page.blank()
    return page.text() + "\n" + _numbers(_overview_rows(record))


def module(record: Record, name: str) -> str:
    """Every number of one module or parameter, and of the parameters in it."""
    page = Page()
    known = record.module(name)
    if known is not None:
        flags = f"training={known.training}, calls={known.calls}"
        page.paragraph(f"{name or 'the whole model'}: {known.kind}, {flags}")
        page.paragraph(_settings(known.config) or "no settings recorded", "  ")
    for param in record.facts.params:
        if param.name == name or param.module == name:
            held = "no optimizer" if param.optimizer is None else f"optimizer {param.optimizer}"
            grad = "" if param.requires_grad else ", frozen"
            page.paragraph(f"{param.name}: {list(param.shape)} {param.dtype}, {held}{grad}")
    page.blank()
    rows = [(c, s) for c, s in record.channels.items() if _belongs(c, name)]
    return page.text() + "\n" + _numbers(rows)


def data(record: Record, name: str | None = None) -> dict[str, Any]:
    """The static facts, and a summary of every series (of one module, if it is named)."""
    series = [
        {"site": c.name, "kind": c.kind, "metric": c.metric, **summary(s)}
        for c, s in record.channels.items()
        if len(s) and (name is None or _belongs(c, name))
    ]
    return {**json.facts(record.facts), "series": series}


def summary(series: Series) -> dict[str, Any]:
    """First, last, smallest and largest reading; the last two of the finite ones."""
    finite = series.finite().values
    return {
        "looks": len(series),
        "first_step": int(series.steps[0]),
        "last_step": int(series.steps[-1]),
        "first": float(series.values[0]),
        "last": float(series.values[-1]),
        "min": float(finite.min()) if len(finite) else None,
        "max": float(finite.max()) if len(finite) else None,
    }


def _run(page: Page, record: Record) -> None:
    run = record.facts.run
    page.paragraph(f"{run.id}: {command_line(redact(run.command))}")
    ended = run.finished or "cut off"
    page.paragraph(f"started {run.started or '?'}, {count(run.steps, 'step')}, ended: {ended}")
    exception = run.notes.get(metrics.N_EXCEPTION)
    if exception:
        page.paragraph(f"exception: {exception}")
    compiled = f"compiled with {run.backend or '?'}" if run.compiled else "not compiled"
    torch = f"torch {run.torch or '?'}, Python {run.python or '?'}"
    page.paragraph(f"{torch}, NeuralDBG {run.neuraldbg or '?'}; {run.device}, {compiled}")
    if run.world_size > 1:
        page.paragraph(f"rank {run.rank} of {run.world_size}")
    cost = record.facts.overhead
    page.paragraph(words.cost(cost.ratio, cost.seconds))


def _optimizers(record: Record) -> Iterable[str]:
    for known in record.facts.optimizers:
        foreign = f", {known.foreign} of them of no watched model" if known.foreign else ""
        held = f"{count(known.params, 'parameter')}{foreign}, {count(known.steps, 'step')}"
        groups = "; ".join(_settings(group) for group in known.groups)
        yield f"{known.kind}: {held}. {groups}"


def _losses(record: Record) -> Iterable[str]:
    for known in record.facts.losses:
        ops = listing(known.ops, most=6)
        yield f"{known.kind}, {known.reduction or 'reduction unknown'}; graph: {ops or 'not seen'}"


def _curves(record: Record) -> Iterable[str]:
    for curve in main_curves(record):
        for name, series in curve.lines[:1]:
            ends = (_number(float(series.values[0])), _number(float(series.values[-1])))
            yield f"{spark.line(series)} {name} {ends[0]} to {ends[1]}"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _overview_rows(record: Record) -> list[tuple[Channel, Series]]:
    rows = [(c, s) for c, s in record.channels.items() if c.metric == metrics.L_VALUE]
    for known in record.called():
        for metric in _KEY:
            channel = Channel(Kind.MODULE, known.name, metric)
            if channel in record.channels:
                rows.append((channel, record.channels[channel]))
    return rows


def _numbers(rows: Iterable[tuple[Channel, Series]]) -> str:
    lines: list[tuple[str, ...]] = [("WHERE", *_HEAD)]
    previous = None
    for channel, series in rows:
        if not len(series):
            continue
        where = short(
            place(channel.name) if channel.kind == Kind.MODULE else plain(channel.name), 30
        )
        shown = "" if channel.site == previous else where
        lines.append((shown, channel.metric, *_cells(summary(series))))
        previous = channel.site
    return table(lines, right=_RIGHT) if len(lines) > 1 else "No numbers were recorded.\n"


def _cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (found["first"], found["last"], found["min"], found["max"])
    return (str(found["looks"]), *(_number(n) for n in numbers))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _belongs(channel: Channel, name: str) -> bool:
    if channel.name == name:
        return True
    return channel.kind == Kind.PARAM and channel.name.rpartition(".")[0] == name
