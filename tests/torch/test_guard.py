"""Faults of ours stay ours: one warning, a gap, and training as it would have been."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuraldbg.core.facts import Gap
from neuraldbg.core.record import Record
from neuraldbg.errors import ObservationWarning
from neuraldbg.store.writer import RunWriter
from neuraldbg.torch import bank, concern, facts, guard, hooks, models, ownership, seen, updates
from neuraldbg.torch.guard import Faults
from neuraldbg.torch.loop import Watch as Loop
from neuraldbg.torch.monitor import NeuralDbg

Read = Callable[[NeuralDbg], Record]

STEPS = 4


class BrokenError(Exception):
    """Ours, on purpose."""


def run(watch: Callable[..., Any]) -> tuple[list[float], list[Tensor]]:
    """Train with everything that is listened to: scaling, clipping, a schedule, evaluation."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    losses = []
    with watch(model):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(torch.randn(8, 4)), torch.ones(8, 2))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            with torch.no_grad():
                losses.append(nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 2)))
            losses.append(loss.item())
    return [float(x) for x in losses], [p.detach().clone() for p in model.parameters()]


PIECES: dict[str, tuple[object, str]] = {
    "taps": (hooks._Recorder, "record"),
    "bank": (bank.HostBank, "add"),
    "drain": (bank.Ledger, "drain"),
    "batch": (seen.LossSide, "batch"),
    "prediction": (seen.LossSide, "predicted"),
    "loss": (seen.LossSide, "note"),
    "loss graph": (seen.LossSide, "read"),
    "hazards": (seen.LossSide, "look_out"),
    "settling": (seen.LossSide, "settle"),
    "scaling": (seen.LossSide, "scaled"),
    "late losses": (seen.LossSide, "arrived"),
    "before a step": (updates.ParamSide, "before_step"),
    "after a step": (updates.ParamSide, "after_step"),
    "clipping": (updates.ParamSide, "clipped"),
    "skipping": (updates.ParamSide, "skipped"),
    "end of a look": (updates.ParamSide, "end_look"),
    "optimizers": (updates.ParamSide, "know"),
    "concern": (concern.Concern, "loss"),
    "names": (models.Models, "settle_names"),
    "hooks": (models.Models, "add"),
    "facts": (ownership.Ownership, "write"),
    "reach": (ownership.Ownership, "meet"),
    "flags": (ownership.Ownership, "note_flags"),
    "autocast": (facts, "autocast"),
    "backward": (Loop, "_backward"),
    "after backward": (Loop, "_after_backward"),
    "boundary": (Loop, "_boundary"),
    "write step": (Loop, "_write_step"),
    "evaluation": (Loop, "_late"),
    "step callback": (Loop, "_judge"),
    "writer: frame": (RunWriter, "frame"),
    "writer: channels": (RunWriter, "channels"),
    "writer: facts": (RunWriter, "modules"),
    "writer: run": (RunWriter, "run"),
    "writer: overhead": (RunWriter, "overhead"),
}


def sabotage(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    owner, name = PIECES[piece]

    def fail(*_: Any, **__: Any) -> None:
        raise BrokenError(piece)

    monkeypatch.setattr(owner, name, fail)


@pytest.mark.parametrize("piece", PIECES)
def test_a_broken_piece_of_ours_does_no_harm(
    piece: str, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    expected = run(lambda _: nullcontext())
    made: list[NeuralDbg] = []

    def watch(model: nn.Module) -> NeuralDbg:
        made.append(NeuralDbg(model, budget=float("inf")))
        return made[0]

    with monkeypatch.context() as patch:
        sabotage(patch, piece)
        with pytest.warns(ObservationWarning, match="BrokenError") as warned:
            losses, params = run(watch)
    assert len(warned) == 1
    assert losses == expected[0]
    assert all(map(torch.equal, params, expected[1]))
    assert any("Broken" in gap.why for gap in made[0].gaps)
    record = read(made[0])
    assert set(record.facts.gaps) == set(made[0].gaps)
    if piece not in ("boundary", "hooks", "writer: run"):  # then there is nothing to count
        assert record.facts.run.steps >= STEPS


@pytest.mark.parametrize("piece", PIECES)
def test_under_strict_it_is_raised_and_nothing_stays(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left behind is checked after every test."""
    sabotage(monkeypatch, piece)
    with pytest.raises(BrokenError):
        run(lambda model: NeuralDbg(model, budget=float("inf"), strict=True))


def test_the_environment_asks_for_strictness_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURALDBG_STRICT", "on")
    sabotage(monkeypatch, "taps")
    with pytest.raises(BrokenError):
        run(NeuralDbg)
    with pytest.warns(ObservationWarning):
        run(lambda model: NeuralDbg(model, strict=False))


def test_a_fault_inside_a_compiled_graph(
    monkeypatch: pytest.MonkeyPatch, fresh_dynamo: Any
) -> None:
    sabotage(monkeypatch, "taps")
    model = nn.Linear(4, 2)
    call = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.warns(ObservationWarning), NeuralDbg(call):
        call(torch.ones(2, 4)).sum().backward()
    assert model.weight.grad.tolist() == [[2.0] * 4] * 2


def test_a_fault_of_ours_does_not_eat_one_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch, "boundary")
    model = nn.Linear(4, 2)

    def fail() -> None:
        with NeuralDbg(model):
            model(torch.ones(2, 4)).sum().backward()
            raise KeyError("theirs")  # noqa: EM101

    with pytest.warns(ObservationWarning), pytest.raises(KeyError, match="theirs"):
        fail()


def test_interrupts_go_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while our code runs is the user's."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    model = nn.Linear(4, 2)

    def fail() -> None:
        with NeuralDbg(model):
            monkeypatch.setattr(hooks._Recorder, "record", interrupt)
            model(torch.ones(2, 4))

    with pytest.raises(KeyboardInterrupt):
        fail()


# -- the collector -------------------------------------------------------------------------


def test_the_same_gap_is_kept_once() -> None:
    faults = Faults()
    told: list[Gap] = []
    faults.on_gap = told.append
    for _ in range(2):
        faults.gap("a", "b")
    faults.gap("a", "c")
    assert faults.gaps == told == [Gap("a", "b"), Gap("a", "c")]


def test_gaps_do_not_fill_the_memory() -> None:
    faults = Faults()
    for i in range(10 * guard.MOST):
        faults.gap("a", str(i))
    assert len(faults.gaps) == guard.MOST


def test_a_gap_that_cannot_be_written_is_kept() -> None:
    def fail(_: Gap) -> None:
        raise BrokenError

    faults = Faults()
    faults.on_gap = fail
    faults.gap("a", "b")
    assert faults.gaps == [Gap("a", "b")]


def test_a_warning_never_ends_the_training() -> None:
    """Even where warnings are errors."""
    faults = Faults()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        faults.fault("something", BrokenError("x"))
    assert faults.gaps == [Gap("something", "BrokenError: x")]
