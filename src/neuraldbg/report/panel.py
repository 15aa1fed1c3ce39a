"""A run on a few lines while it trains: loss, layers, events, the best guess so far, cost."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Kind, Overhead
from neuraldbg.core.record import Record
from neuraldbg.report import spark, words
from neuraldbg.report.names import collapse, count, plain

HEIGHT: Final = 10
_EVENTS: Final = 3
_LINES: Final = 2  # of the best guess
_RECENT: Final = 50  # steps whose time is told
_LEAD: Final = 8
_LAYERS: Final = frozenset({EventType.ACTIVATION, EventType.GRADIENT, EventType.UPDATE})

# States from the worst to the best, each with its mark in the row of layers.
_MARKS: Final = {
    "nonfinite": "N",
    "exploding": "E",
    "dead": "D",
    "collapsed": "C",
    "saturated": "S",
    "zero": "Z",
    "absent": "A",
    "vanishing": "V",
    "frozen": "F",
    "huge": "H",
    "tiny": "T",
}
_WELL: Final = "·"
_WORST: Final = {state: rank for rank, state in enumerate(_MARKS)}


def lines(record: Record, diagnosis: Diagnosis, width: int = 80) -> list[str]:
    """Exactly `HEIGHT` lines of at most `width` characters.

    Args:
        record: What was observed so far.
        diagnosis: What was concluded from it so far.
        width: Columns.
    """
    cost = _led("Cost", _cost(diagnosis.overhead))
    drawn = [*observed(record, diagnosis.events, width), *_best(diagnosis, width), cost]
    return [line[:width].rstrip() for line in drawn]


def observed(record: Record, events: Sequence[SemanticEvent], width: int = 80) -> list[str]:
    """The lines without judgement: loss, layers and events."""
    drawn = [_title(record, width), _loss(record, width), *_health(record, events, width)]
    return [line[:width].rstrip() for line in (*drawn, *_latest(events))]


def waiting(width: int = 80) -> list[str]:
    """The lines before anything was observed."""
    said = [_rule("waiting for the first step", width), *[""] * (HEIGHT - 1)]
    return [line[:width] for line in said]


def _title(record: Record, width: int) -> str:
    loss = record.series(Kind.LOSS, "loss", m.L_VALUE)
    if not len(loss):
        return _rule("no loss yet", width)
    pace = record.series(Kind.RUN, "", m.R_SECONDS).values[-_RECENT:]
    each = f", {1000 * float(np.median(pace)):.3g} ms each" if len(pace) else ""
    return _rule(f"step {int(loss.steps[-1]):,}{each}", width)


def _rule(said: str, width: int) -> str:
    return f"-- NeuralDBG -- {said} ".ljust(width, "-")


def _loss(record: Record, width: int) -> str:
    loss = record.series(Kind.LOSS, "loss", m.L_VALUE)
    return _led("Loss", spark.told(loss, min(spark.WIDTH, width // 2)))


def _health(record: Record, events: Sequence[SemanticEvent], width: int) -> list[str]:
    """One mark for each layer in order of execution, and how many are in which state."""
    names = [module.name for module in record.called() if module.leaf]
    state = _states(names, events)
    found = Counter(state[name] for name in names if name in state)
    ill = [f"{n} {s} ({_MARKS[s]})" for s, n in sorted(found.items(), key=lambda x: _WORST[x[0]])]
    well = len(names) - sum(found.values())
    said = ", ".join([*ill, f"{well} well ({_WELL})"]) if names else ""
    marks = [_MARKS.get(state.get(name, ""), _WELL) for name in names]
    return [_led("Layers", _strip(marks, width - _LEAD)), _led("", said)]


def _states(names: Sequence[str], events: Sequence[SemanticEvent]) -> dict[str, str]:
    """The worst state that each layer is in now; layers that are well are left out."""
    known = set(names)
    latest: dict[tuple[EventType, str], str] = {}
    for event in events:
        if event.kind in _LAYERS:
            latest[event.kind, event.where] = event.after
    worst: dict[str, str] = {}
    for (_, where), state in latest.items():
        name = where if where in known else where.rpartition(".")[0]
        if name in known and state in _WORST:
            worst[name] = min(worst.get(name, state), state, key=_WORST.__getitem__)
    return worst


def _strip(marks: Sequence[str], width: int) -> str:
    """Marks on one line; neighbours share a place if there are too many, the worst shows."""
    if len(marks) <= width:
        return "".join(marks)
    order = [*_MARKS.values(), _WELL]
    return "".join(
        min((str(mark) for mark in part), key=order.index)
        for part in np.array_split(np.array(marks), width)
    )


def _latest(events: Sequence[SemanticEvent]) -> list[str]:
    """The last changes, the newest first; those of one step and kind on one line."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    for e in reversed(events):
        groups.setdefault((e.step, e.before, e.after), []).append(e.where)
    said = [
        f"step {step:,}: {', '.join(collapse(sorted(where)))}: {plain(before)} to {plain(after)}"
        for (step, before, after), where in list(groups.items())[:_EVENTS]
    ]
    said += [""] * (_EVENTS - len(said))
    return [_led("" if i else "Events", line) for i, line in enumerate(said)]


def _best(diagnosis: Diagnosis, width: int) -> list[str]:
    """The leading hypothesis in two lines."""
    best = diagnosis.hypotheses[0] if diagnosis.hypotheses else None
    if best is None:
        said = f"no fault so far; {count(len(diagnosis.events), 'change')} of state"
    else:
        said = f"{words.confidence(best.confidence)}: {words.cause(best)}"
    cut = textwrap.wrap(said, max(width - _LEAD, 1), max_lines=_LINES, placeholder=" ...")
    cut += [""] * (_LINES - len(cut))
    return [_led("" if i else "Best", line) for i, line in enumerate(cut)]


def _cost(cost: Overhead) -> str:
    return words.cost(cost.ratio, cost.seconds) if cost.seconds else ""


def _led(lead: str, said: str) -> str:
    return f"{lead:<{_LEAD}}{said}"
