"""Which pictures a run has: the same ones in every report, under the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Diagnosis, Evidence
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.record import Record, Series
from neuraldbg.report import words
from neuraldbg.report.charts import causal
from neuraldbg.report.charts.axes import Mark, Span
from neuraldbg.report.charts.curve import Curve
from neuraldbg.report.charts.grid import grids
from neuraldbg.report.charts.heatmap import HeatMap
from neuraldbg.report.flow import flow
from neuraldbg.report.names import place

MOST_EVIDENCE: Final = 12  # curves beside the evidence

# What a sentence speaks of, and the metrics that show it, the most telling first.
_ABOUT: Final = (
    (re.compile(r"update|moves|frozen|huge|tiny"), (m.P_RATIO, m.P_UPDATE)),
    (re.compile(r"gradient|vanishing|exploding|backward"), (m.P_GRAD, m.GRAD_RMS)),
    (re.compile(r"dead|negative"), (m.ACT_NEGATIVE_UNITS, m.ACT_ZERO)),
    (re.compile(r"saturat|flat"), (m.ACT_FLAT,)),
    (re.compile(r"collapsed|constant|same for"), (m.ACT_CONSTANT_UNITS,)),
)
_USUAL: Final = {
    Kind.LOSS: (m.L_VALUE,),
    Kind.PARAM: (m.P_RATIO, m.P_GRAD, m.P_WEIGHT),
    Kind.MODULE: (m.GRAD_RMS, m.ACT_RMS),
    Kind.BATCH: (m.B_STD, m.B_ABSMAX, m.B_MAJORITY),
    Kind.OPTIMIZER: (m.O_LR, m.O_CLIP_NORM),
}


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """All pictures of a run.

    Attributes:
        causal: The causal graph as SVG; empty if nothing is wrong.
        main: Loss, learning rate and gradient norm.
        maps: Modules against steps, one for each measure.
        evidence: The curve that shows a channel which evidence points at.
        span: The steps they cover.
    """

    causal: str
    main: tuple[Curve, ...]
    maps: tuple[HeatMap, ...]
    evidence: Mapping[Channel, Curve]
    span: Span

    @property
    def further(self) -> tuple[Curve, ...]:
        """Curves of the evidence that are not among the main ones."""
        return tuple(c for c in self.evidence.values() if c not in self.main)

    def named(self) -> Iterator[tuple[str, str]]:
        """Every picture that can be exported, with its name."""
        if self.causal:
            yield "causal", self.causal
        for curve in self.main:
            yield curve.name, curve.draw(self.span)
        for map_ in self.maps:
            yield map_.name, map_.draw()


def pictures(record: Record, diagnosis: Diagnosis) -> Pictures:
    """The pictures of a run; only those there are readings for."""
    span = span_of(record)
    onset = onsets(diagnosis)
    main = tuple(main_curves(record, onset))
    return Pictures(
        causal=causal.draw(flow(diagnosis)) if diagnosis.hypotheses else "",
        main=main,
        maps=tuple(
            HeatMap(grid.measure.name, grid, diagnosis.events, onset)
            for grid in grids(record, span)
        ),
        evidence=_evidence(record, diagnosis, main, onset),
        span=span,
    )


def span_of(record: Record) -> Span:
    """From the first step read to the last."""
    read = [s.steps for s in record.channels.values() if len(s)]
    if not read:
        return Span(0, max(record.facts.run.steps - 1, 0))
    return Span(min(int(s[0]) for s in read), max(int(s[-1]) for s in read))


def onsets(diagnosis: Diagnosis) -> tuple[Mark, ...]:
    """Where the likely faults began."""
    likely = [h for h in diagnosis.hypotheses if h.confidence >= words.LIKELY]
    return tuple(
        Mark(h.first_step, f"onset of {h.cause}")
        for h in likely or diagnosis.hypotheses[:1]
        if h.first_step is not None
    )


def main_curves(record: Record, onset: tuple[Mark, ...] = ()) -> Iterator[Curve]:
    """Loss, learning rate and gradient norm over the steps."""
    chosen = (
        ("loss", "Loss", _lines(record, Kind.LOSS, m.L_VALUE)),
        ("lr", "Learning rate", _rates(record)),
        ("grad-norm", "Gradient norm (all parameters)", _norm(record)),
    )
    for name, title, lines in chosen:
        if lines:
            yield Curve(name, title, lines, onset)


def channel_of(record: Record, evidence: Evidence) -> Channel | None:
    """The series that a piece of evidence speaks of, as far as its words and place tell."""
    if evidence.where is None:
        return _spoken_of(record, evidence.text)
    for kind in (Kind.MODULE, Kind.PARAM, Kind.LOSS, Kind.BATCH, Kind.OPTIMIZER):
        for metric in (*_wanted(evidence.text), *_USUAL[kind]):
            channel = Channel(kind, evidence.where, metric)
            if channel in record.channels:
                return channel
    return None


def _spoken_of(record: Record, text: str) -> Channel | None:
    """A site that a sentence names, the longest name first; the loss if it speaks of that."""
    said = set(re.findall(r"[\w./-]+", text))
    known = sorted({c.name for c in record.channels if c.name in said}, key=len, reverse=True)
    if known:
        return channel_of(record, Evidence(text, 0.0, known[0]))
    if re.search(r"\blr\b|learning rate", text):
        return next((c for c in record.channels if c.metric == m.O_LR), None)
    return None


def _wanted(text: str) -> tuple[str, ...]:
    return tuple(metric for about, metrics in _ABOUT if about.search(text) for metric in metrics)


def _evidence(
    record: Record, diagnosis: Diagnosis, main: tuple[Curve, ...], onset: tuple[Mark, ...]
) -> dict[Channel, Curve]:
    found: dict[Channel, Curve] = {}
    shown = {m.L_VALUE: "loss", m.O_LR: "lr"}
    for channel in _pointed_at(record, diagnosis):
        there = [c for c in main if c.name == shown.get(channel.metric)]
        if there:
            found[channel] = there[0]
        elif len(found) < MOST_EVIDENCE:
            found[channel] = _curve(record, channel, f"evidence-{len(found)}", onset)
    return found


def _pointed_at(record: Record, diagnosis: Diagnosis) -> list[Channel]:
    """Channels in order of how much the evidence that points at them weighs."""
    said = [
        e
        for h in diagnosis.hypotheses
        for e in (*sorted(h.evidence, key=lambda e: -abs(e.weight)), *h.against)
    ]
    channels = (channel_of(record, evidence) for evidence in said)
    return list(dict.fromkeys(c for c in channels if c is not None))


def _curve(record: Record, channel: Channel, name: str, onset: tuple[Mark, ...]) -> Curve:
    title = f"{place(channel.name)}: {channel.metric.replace('_', ' ')}"
    return Curve(name, title, [(channel.metric, record.channels[channel])], onset)


def _lines(record: Record, kind: Kind, metric: str) -> list[tuple[str, Series]]:
    return sorted(record.each(kind, metric), key=lambda line: line[0])


def _rates(record: Record) -> list[tuple[str, Series]]:
    """The learning rate of each group of each optimizer."""
    lines = _lines(record, Kind.OPTIMIZER, m.O_LR)
    if len(lines) == 1:
        return [("learning rate", lines[0][1])]
    named = ((name.partition("."), series) for name, series in lines)
    return [(f"optimizer {i}, group {g}" if g else i, s) for (i, _, g), s in named]


def _norm(record: Record) -> list[tuple[str, Series]]:
    """The Euclidean norm over all parameters at each look; as clipping saw it, if it did."""
    clipped = _lines(record, Kind.OPTIMIZER, m.O_CLIP_NORM)
    if len(clipped) == 1:
        return [("gradient norm before clipping", clipped[0][1])]
    if clipped:
        return [(f"optimizer {name}", series) for name, series in clipped]
    found = [s for _, s in record.each(Kind.PARAM, m.P_GRAD)]
    if not found:
        return []
    steps, at = np.unique(np.concatenate([s.steps for s in found]), return_inverse=True)
    squares = np.zeros(len(steps))
    with np.errstate(over="ignore"):
        np.add.at(squares, at, np.concatenate([s.values for s in found]) ** 2)
    return [("gradient norm", Series(steps, np.sqrt(squares)))]
