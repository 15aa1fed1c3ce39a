"""Evidence finds its curve."""

from __future__ import annotations

import pytest

from neuraldbg.core import metrics as m
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import Channel, Kind
from neuraldbg.core.record import Record
from neuraldbg.report.pictures import channel_of, main_curves, pictures

from .recorded import record, series
from .samples import failed, healthy


@pytest.mark.parametrize(
    ("evidence", "site", "metric"),
    [
        (
            Evidence("updates are 31 times the weights", 3.0, "blocks.0.weight"),
            "blocks.0.weight",
            m.P_RATIO,
        ),
        (Evidence("the gradient explodes", 3.0, "blocks.1"), "blocks.1", m.GRAD_RMS),
        (Evidence("it is saturated", 3.0, "blocks.1"), "blocks.1", m.ACT_FLAT),
        (Evidence("it is NaN", 3.0, "loss"), "loss", m.L_VALUE),
        (Evidence("it explains that blocks.2 is exploding", 3.0), "blocks.2", m.GRAD_RMS),
        (Evidence("the lr is high", 3.0), "0.0", m.O_LR),
    ],
)
def test_a_sentence_leads_to_the_series_it_speaks_of(
    evidence: Evidence, site: str, metric: str
) -> None:
    channel = channel_of(record(), evidence)
    assert channel is not None
    assert (channel.name, channel.metric) == (site, metric)


def test_a_sentence_about_nothing_that_was_read_has_no_curve() -> None:
    assert channel_of(record(), Evidence("it is odd", 1.0)) is None
    assert channel_of(record(), Evidence("it is odd", 1.0, "nowhere")) is None


def test_evidence_of_the_loss_points_at_the_loss_itself() -> None:
    shown = pictures(record(), failed())
    assert shown.main[0] in shown.evidence.values()
    assert shown.main[0] not in shown.further
    assert [curve.name for curve in shown.further] == ["evidence-0"]


def test_a_healthy_run_has_no_curves_of_evidence() -> None:
    assert not pictures(record(), healthy()).evidence


def test_every_line_of_the_learning_rate_has_a_name() -> None:
    known = record()
    (line,) = next(c for c in main_curves(known) if c.name == "lr").lines
    assert line[0] == "learning rate"
    rate = known.channels[Channel(Kind.OPTIMIZER, "0.0", m.O_LR)]
    more = {**known.channels, Channel(Kind.OPTIMIZER, "1.2", m.O_LR): rate}
    lines = next(c for c in main_curves(Record(known.facts, more)) if c.name == "lr").lines
    assert [name for name, _ in lines] == ["optimizer 0, group 0", "optimizer 1, group 2"]


def test_clipping_saw_the_norm_of_each_optimizer() -> None:
    known = record()
    first = {Channel(Kind.OPTIMIZER, "0", m.O_CLIP_NORM): series(1.0, 2.0)}
    both = {**first, Channel(Kind.OPTIMIZER, "1", m.O_CLIP_NORM): series(1.0, 2.0)}
    shown = [next(main_curves(Record(known.facts, c))).lines for c in (first, both)]
    assert [[name for name, _ in lines] for lines in shown] == [
        ["gradient norm before clipping"],
        ["optimizer 0", "optimizer 1"],
    ]
