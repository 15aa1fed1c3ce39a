"""The lines that show a run while it trains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import Overhead
from neuraldbg.report.panel import HEIGHT, lines, waiting

from .recorded import bare, record
from .samples import ALL, failed, healthy


def shown(events: list[tuple[EventType, str, int, str]], names: tuple[str, ...] = ()) -> list[str]:
    """What is shown of a run in which these layers changed their state."""
    found = tuple(
        SemanticEvent(f"e{i}", kind, where, step, "healthy", after)
        for i, (kind, where, step, after) in enumerate(events)
    )
    return lines(record(names), replace(healthy(), events=found))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_it_has_its_height_and_never_more_than_the_width(make: type[Diagnosis], width: int) -> None:
    for drawn in (lines(record(), make(), width), lines(bare(), make(), width), waiting(width)):
        assert len(drawn) == HEIGHT
        assert max(map(len, drawn)) <= width
        assert all(line.isprintable() for line in drawn)


def test_it_tells_the_loss_the_best_guess_and_the_cost() -> None:
    known = replace(failed(), overhead=Overhead(0.012, 0.5))
    text = "\n".join(lines(record(), known))
    assert text.startswith("-- NeuralDBG -- step 39 --")
    assert "Loss    █" in text
    assert "2.3 to 0.868" in text
    assert "very likely (0.93)" in text
    assert "Watching cost 1.2 % of the run's time (0.5 s)." in text


def test_a_layer_shows_the_worst_state_that_it_is_in_now() -> None:
    drawn = shown(
        [
            (EventType.ACTIVATION, "blocks.0", 1, "dead"),
            (EventType.GRADIENT, "blocks.0", 2, "vanishing"),
            (EventType.GRADIENT, "blocks.1", 2, "exploding"),
            (EventType.GRADIENT, "blocks.1", 3, "healthy"),
            (EventType.UPDATE, "blocks.2.weight", 4, "huge"),
            (EventType.LOSS, "loss", 5, "rising"),
        ]
    )
    assert drawn[2] == "Layers  D·H·"
    assert drawn[3].strip() == "1 dead (D), 1 huge (H), 2 well (·)"
    assert drawn[4] == "Events  step 5: loss: healthy to rising"
    assert drawn[6].strip() == "step 3: blocks.1: healthy to healthy"


def test_many_layers_share_places_and_the_worst_shows() -> None:
    names = tuple(f"blocks.{i}" for i in range(1000))
    drawn = shown([(EventType.ACTIVATION, "blocks.503", 1, "nonfinite")], names)
    assert len(drawn[2]) == 80
    assert drawn[2].count("N") == 1
    assert "1 nonfinite (N), 999 well (·)" in drawn[3]
