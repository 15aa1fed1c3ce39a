"""The flowchart: small, valid, and not to be broken by a name."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from neuraldbg.core.diagnosis import CausalHypothesis, Coupling, Diagnosis, Link
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.report.mermaid import MOST_NODES, draw, escape, render

from .samples import ALL, EVIL, events, facts, failed

LABEL = r'"(?:[A-Za-z0-9 .,:/()+\-=_*!?\']|#\d+;|<br/>)*"'
NODE = re.compile(rf"    n\d+\[{LABEL}\]")
ARROW = re.compile(rf"    n\d+ -->(?:\|{LABEL}\|)? n\d+")


def assert_valid(chart: str) -> None:
    """Every line is a node or an arrow between nodes that are there."""
    head, *lines = chart.splitlines()
    assert head == "flowchart TD"
    nodes = {line.split("[")[0].strip() for line in lines if NODE.fullmatch(line)}
    arrows = [line for line in lines if not NODE.fullmatch(line)]
    assert nodes
    assert len(nodes) <= MOST_NODES
    for line in arrows:
        assert ARROW.fullmatch(line), line
        assert {line.split()[0], line.split()[-1]} <= nodes


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_the_chart_is_valid(make: Callable[[], Diagnosis]) -> None:
    assert_valid(render(make()))


def test_nothing_special_is_left_of_an_evil_name() -> None:
    assert not set(escape(EVIL.replace("\n", " "))) & set('<>"[]{}|`%\\\x1b')


def test_equal_events_of_neighbours_are_one_node() -> None:
    chart = render(failed())
    assert "blocks.0 ... blocks.11" in chart
    assert chart.count("exploding") == 1


def test_a_gap_between_layers_is_not_hidden() -> None:
    kept = [e for e in events() if e.where != "blocks.5"]
    links = [Coupling("g4", "g6", "backward", 1.0, "")]
    chart = draw(kept, links)
    assert "blocks.0 ... blocks.4" in chart
    assert "blocks.6 ... blocks.11" in chart


def test_a_long_chain_is_cut() -> None:
    chain = tuple(Link(f"sentence {i}") for i in range(40))
    best = CausalHypothesis("lr_too_high", 0.9, chain=chain)
    assert_valid(render(Diagnosis(facts(), "failed", (best,))))


def test_many_couplings_stay_within_the_limit() -> None:
    happened = [SemanticEvent(f"e{i}", EventType.LOSS, f"part{i}", i, "a", "b") for i in range(60)]
    links = [Coupling(f"e{i}", f"e{i + 1}", "flow", 1.0, "") for i in range(59)]
    assert_valid(draw(happened, links))


def test_nothing_to_draw_is_said() -> None:
    assert_valid(draw([], []))
    assert "nothing to draw" in draw([], [])
