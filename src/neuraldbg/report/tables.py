"""Readings and events as tables: CSV with nothing but Python, Parquet with pyarrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from neuraldbg.core.events import SemanticEvent
from neuraldbg.core.record import Record
from neuraldbg.errors import MissingExtraError
from neuraldbg.report.json import encode

READINGS: Final = ("kind", "where", "metric", "step", "value")
EVENTS: Final = ("id", "kind", "where", "step", "from", "to", "confidence", "metadata")


def readings_csv(record: Record) -> str:
    """One line for each reading; numbers that are none are `nan`, `inf` and `-inf`."""
    return _csv(READINGS, _readings(record))


def events_csv(events: Sequence[SemanticEvent]) -> str:
    """One line for each event; what it measured is JSON."""
    return _csv(EVENTS, map(_event, events))


def readings_parquet(record: Record) -> bytes:
    """The readings as a Parquet file.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = _arrow()
    channels = [(c, s) for c, s in record.channels.items() if len(s)]
    lengths = [len(s) for _, s in channels]
    columns = {
        name: np.repeat(np.array([str(getattr(c, key)) for c, _ in channels], object), lengths)
        for name, key in (("kind", "kind"), ("where", "name"), ("metric", "metric"))
    }
    empty = (np.empty(0, np.int64), np.empty(0, np.float64))
    columns["step"] = np.concatenate([empty[0], *(s.steps for _, s in channels)])
    columns["value"] = np.concatenate([empty[1], *(s.values for _, s in channels)])
    kinds = [arrow.string()] * 3 + [arrow.int64(), arrow.float64()]
    # From numpy, NaN would be taken for "missing" by some readers: it stays a number here.
    arrays = [
        arrow.array(columns[name], type=kind, from_pandas=False)
        for name, kind in zip(READINGS, kinds, strict=True)
    ]
    return _parquet(arrow, arrow.table(dict(zip(READINGS, arrays, strict=True))))


def events_parquet(events: Sequence[SemanticEvent]) -> bytes:
    """The events as a Parquet file.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = _arrow()
    kinds = (arrow.string(),) * 3 + (arrow.int64(),) + (arrow.string(),) * 2
    fields = list(zip(EVENTS, (*kinds, arrow.float64(), arrow.string()), strict=True))
    rows = [dict(zip(EVENTS, _event(event), strict=True)) for event in events]
    return _parquet(arrow, arrow.Table.from_pylist(rows, schema=arrow.schema(fields)))


def _csv(head: Sequence[str], rows: Iterator[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def _readings(record: Record) -> Iterator[tuple[Any, ...]]:
    for channel, series in record.channels.items():
        site = (channel.kind.value, channel.name, channel.metric)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            yield (*site, step, value)


def _event(event: SemanticEvent) -> tuple[Any, ...]:
    said = encode(event.metadata, indent=None)
    states = (event.before, event.after, float(event.confidence))
    return (event.id, event.kind.value, event.where, event.step, *states, said)


def _arrow() -> Any:  # noqa: ANN401 - the module
    try:
        import pyarrow
    except ImportError as error:
        msg = "Parquet needs pyarrow: pip install 'neuraldbg[export]'; CSV needs nothing"
        raise MissingExtraError(msg) from error
    return pyarrow


def _parquet(arrow: Any, table: Any) -> bytes:  # noqa: ANN401 - pyarrow has no types
    from pyarrow import parquet

    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
