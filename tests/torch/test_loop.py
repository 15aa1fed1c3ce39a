"""The training loop as it is followed: steps, losses, rates, scaling, clipping."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuraldbg.core import metrics as m
from neuraldbg.core.facts import Kind
from neuraldbg.core.record import Record, Series
from neuraldbg.torch.loop import PATIENCE
from neuraldbg.torch.monitor import NeuralDbg
from neuraldbg.torch.schedule import Schedule

Watch = Callable[..., NeuralDbg]
Read = Callable[[NeuralDbg], Record]
Train = Callable[..., list[float]]
Losses = Callable[..., list[float]]


def sgd(model: nn.Module, lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def carried(record: Record, optimizer: int = 0) -> list[float]:
    return record.series(Kind.OPTIMIZER, str(optimizer), m.O_CARRIED).values.tolist()


# -- steps -----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False], ids=["given", "found"])
def test_a_step_is_a_step_of_the_optimizer(
    given: bool, mlp: nn.Module, watch: Watch, read: Read, train: Train, losses: Losses
) -> None:
    optimizer = sgd(mlp)
    with watch(mlp, optimizer if given else None) as dbg:
        assert dbg.step == 0
        mine = train(mlp, optimizer, 5)
        assert dbg.step == 5
    assert losses(dbg) == mine
    run = read(dbg).facts.run
    assert (run.steps, run.notes[m.N_STEPS], run.notes[m.N_BACKWARDS]) == (5, 5, 5)


def test_an_optimizer_made_later_counts(
    mlp: nn.Module, watch: Watch, train: Train, losses: Losses
) -> None:
    with watch(mlp) as dbg:
        mine = train(mlp, sgd(mlp), 4)
    assert losses(dbg) == mine


@pytest.mark.parametrize("found", [True, False], ids=["before", "after"])
def test_accumulated_losses_are_one_step(
    found: bool, mlp: nn.Module, watch: Watch, read: Read, losses: Losses
) -> None:
    """Also in the first step, where the optimizer has not stepped yet."""
    optimizer = sgd(mlp) if found else None
    mine = []
    with watch(mlp) as dbg:
        optimizer = optimizer or sgd(mlp)
        for _ in range(3):
            optimizer.zero_grad()
            parts = [mlp(torch.randn(8, 4)).square().mean() / 4 for _ in range(4)]
            for part in parts:
                part.backward()
            optimizer.step()
            mine.append(sum(part.item() for part in parts) / 4)
    record = read(dbg)
    assert losses(dbg) == pytest.approx(mine, rel=1e-12)
    assert record.series(Kind.RUN, "", m.R_BACKWARDS).values.tolist() == [4, 4, 4]
    assert carried(record) == [0, 0]
    assert record.module("0").calls == 4


def test_without_an_optimizer_each_backward_pass_is_a_step(
    mlp: nn.Module, watch: Watch, read: Read, losses: Losses
) -> None:
    mine = []
    with watch(mlp) as dbg:
        for _ in range(5):
            loss = mlp(torch.randn(8, 4)).square().mean()
            loss.backward()
            with torch.no_grad():
                for p in mlp.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            mine.append(loss.item())
    record = read(dbg)
    assert losses(dbg) == mine
    # Changes are judged from look to look.
    assert len(record.series(Kind.PARAM, "0.weight", m.P_RATIO)) == 4
    assert (record.series(Kind.PARAM, "0.weight", m.P_UPDATE).values > 0).all()


def test_an_optimizer_that_never_steps_holds_nothing_up(
    mlp: nn.Module, watch: Watch, read: Read, losses: Losses
) -> None:
    with watch(mlp, sgd(mlp)) as dbg:
        for _ in range(PATIENCE + 10):
            mlp(torch.randn(8, 4)).square().mean().backward()
    run = read(dbg).facts.run
    assert run.notes[m.N_STEPS] == 0
    assert run.notes[m.N_BACKWARDS] == PATIENCE + 10
    assert run.steps == 10


def test_the_user_may_number_the_steps(
    mlp: nn.Module, watch: Watch, read: Read, train: Train
) -> None:
    optimizer = sgd(mlp)
    numbers = [10, 11, 30, 5, 6]
    with watch(mlp, optimizer) as dbg:
        for number in numbers:
            dbg.step = number
            train(mlp, optimizer, 1)
            assert dbg.step == number + 1
    assert read(dbg).series(Kind.LOSS, "loss", m.L_VALUE).steps.tolist() == sorted(numbers)


def test_numbering_by_epoch_does_not_stop_the_looking(
    mlp: nn.Module, monkeypatch: pytest.MonkeyPatch, watch: Watch, train: Train
) -> None:
    monkeypatch.setattr("neuraldbg.torch.schedule.WARM_UP", 0)
    optimizer = sgd(mlp)
    with watch(mlp, optimizer, budget=1.0) as dbg:
        for _ in range(10):
            for batch in range(8):
                dbg.step = batch
                train(mlp, optimizer, 1)
        assert dbg._watch.schedule.looks >= 15


def test_a_last_half_step_is_kept(mlp: nn.Module, watch: Watch, read: Read, train: Train) -> None:
    """The one in which training failed, before the optimizer could step."""
    optimizer = sgd(mlp)
    with watch(mlp, optimizer) as dbg:
        train(mlp, optimizer, 2)
        mlp(torch.full((2, 4), float("nan"))).sum().backward()
    record = read(dbg)
    series = record.series(Kind.LOSS, "loss", m.L_VALUE)
    assert series.steps.tolist() == [0, 1, 2]
    assert np.isnan(series.values[-1])
    assert record.series(Kind.MODULE, "0", m.ACT_NONFINITE).values.tolist() == [0, 0, 16]


def test_time_is_told_apart(mlp: nn.Module, watch: Watch, read: Read) -> None:
    """The user's own seconds, without ours."""
    import time

    optimizer = sgd(mlp)
    with watch(mlp, optimizer) as dbg:
        for _ in range(5):
            time.sleep(0.02)
            mlp(torch.randn(8, 4)).sum().backward()
            optimizer.step()
        ours = dbg._watch.seconds
    seconds = read(dbg).series(Kind.RUN, "", m.R_SECONDS).values
    assert (seconds >= 0.02).all()
    assert ours > 0
    overhead = read(dbg).facts.overhead
    assert overhead.seconds >= ours
    assert overhead.ratio == pytest.approx(overhead.seconds / seconds.sum(), rel=0.5)


# -- several optimizers ------------------------------------------------------------------


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))
        self.dis = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train_gan(gan: Gan, steps: int, zero: str = "before") -> tuple[list[float], list[float]]:
    """Both losses as the user reads them.

    Args:
        gan: The pair.
        steps: Steps of each.
        zero: `before` its own backward pass, as is usual; `after` the step; or `never`.
    """
    opts = [sgd(gan.dis), sgd(gan.gen)]
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        fake = gan.gen(torch.randn(8, 2))
        real = torch.randn(8, 4)
        for i, opt in enumerate(opts):
            if zero == "before":
                opt.zero_grad()
            target = torch.zeros(8, 1) if i == 0 else torch.ones(8, 1)
            loss = F.binary_cross_entropy_with_logits(
                gan.dis(fake.detach() if i == 0 else fake), target
            )
            if i == 0:
                loss = loss + F.binary_cross_entropy_with_logits(gan.dis(real), torch.ones(8, 1))
            loss.backward()
            opt.step()
            found[i].append(loss.item())
            if zero == "after":
                for each in opts:
                    each.zero_grad()
    return found


def test_two_optimizers(watch: Watch, read: Read, losses: Losses) -> None:
    gan = Gan()
    with watch(gan) as dbg:
        discriminator, generator = train_gan(gan, 4)
    assert losses(dbg) == discriminator
    assert losses(dbg, "loss.1") == generator
    record = read(dbg)
    assert [o.steps for o in record.facts.optimizers] == [4, 4]
    assert {p.name: p.optimizer for p in record.facts.params} == {
        name: int(name.startswith("gen")) for name, _ in gan.named_parameters()
    }
    assert len(record.series(Kind.PARAM, "gen.0.weight", m.P_RATIO)) == 4
    assert {fact.index: fact.kind for fact in record.facts.losses} == {
        0: "bce_with_logits",
        1: "bce_with_logits",
    }


@pytest.mark.parametrize("zero", ["before", "after", "never"])
def test_gradients_left_over_with_two_optimizers(zero: str, watch: Watch, read: Read) -> None:
    """Zeroing just before one's own backward pass is in time."""
    gan = Gan()
    with watch(gan) as dbg:
        train_gan(gan, 5, zero)
    record = read(dbg)
    for optimizer in (0, 1):
        left = carried(record, optimizer)
        assert len(left) >= 3
        assert (min(left) > 0) if zero == "never" else (max(left) == 0)


def test_an_optimizer_that_steps_more_often_leads(watch: Watch, read: Read) -> None:
    """One generator step to five of the critic: a step is a step of the critic."""
    gan = Gan()
    opts = [sgd(gan.gen), sgd(gan.dis)]
    with watch(gan) as dbg:
        for _ in range(4):
            for opt in (opts[0], *[opts[1]] * 5):
                opt.zero_grad()
                gan.dis(gan.gen(torch.randn(8, 2))).mean().backward()
                opt.step()
    record = read(dbg)
    assert [o.steps for o in record.facts.optimizers] == [4, 20]
    assert 18 <= record.facts.run.steps <= 21


def test_one_training_after_another(watch: Watch, read: Read, train: Train) -> None:
    """A second optimizer takes over from the first, which may be gone."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with watch(model) as dbg:
        first = sgd(model)
        train(model, first, 10)
        second = torch.optim.Adam(model.parameters())
        train(model, second, 10)
        del first
        train(model, sgd(model), 10)
    record = read(dbg)
    assert record.facts.run.steps >= 28
    # The last one goes on where the first one stopped: same parameters, class and rate.
    assert [o.kind for o in record.facts.optimizers] == ["SGD", "Adam"]


def test_an_optimizer_of_a_function_that_has_returned_is_remembered(
    mlp: nn.Module, watch: Watch, read: Read, train: Train
) -> None:
    with watch(mlp) as dbg:
        train(mlp, torch.optim.AdamW(mlp.parameters(), lr=0.125, betas=(0.5, 0.75)))
    record = read(dbg)
    (fact,) = record.facts.optimizers
    assert (fact.kind, fact.params, fact.foreign) == ("AdamW", 4, 0)
    assert fact.groups[0]["lr"] == 0.125
    assert (fact.groups[0]["betas.0"], fact.groups[0]["betas.1"]) == (0.5, 0.75)
    assert {p.optimizer for p in record.facts.params} == {0}


def test_lbfgs(mlp: nn.Module, watch: Watch, read: Read, losses: Losses) -> None:
    """One step calls the closure many times; its loss is that of the first call."""
    optimizer = torch.optim.LBFGS(mlp.parameters(), max_iter=25, line_search_fn="strong_wolfe")
    x, calls, mine = torch.randn(16, 4), [], []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (mlp(x) - 1).square().mean()
        loss.backward()
        calls.append(loss.item())
        return loss

    with watch(mlp, optimizer) as dbg:
        for _ in range(3):
            mine.append(optimizer.step(closure).item())
    assert len(calls) > PATIENCE
    assert losses(dbg) == mine
    record = read(dbg)
    assert record.facts.run.steps == 3
    assert carried(record) == [0] * len(carried(record))
    grads = record.series(Kind.PARAM, "0.weight", m.P_GRAD)
    assert grads.steps.tolist() == [0, 1, 2]
    assert record.series(Kind.PARAM, "0.weight", m.P_GRAD_NONE).values.tolist() == [0, 0, 0]


# -- beside other models -----------------------------------------------------------------


@pytest.fixture
def sometimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at every third step."""

    def turn(self: Schedule) -> bool:
        self._steps += 1
        return self._steps % 3 == 1

    monkeypatch.setattr(Schedule, "next_step", turn)


@pytest.mark.usefixtures("sometimes")
@pytest.mark.parametrize("optimizers", [True, False])
def test_two_models_under_two_monitors(
    optimizers: bool, mlp: nn.Module, watch: Watch, read: Read, train: Train, losses: Losses
) -> None:
    """Neither takes the other's losses for its own, on due steps and others."""
    models = [mlp, nn.Sequential(nn.Linear(4, 2))]
    opts = [sgd(x) if optimizers else None for x in models]
    mine: list[list[float]] = [[], []]
    with watch(models[0]) as first, watch(models[1]) as second:
        for _ in range(15):
            for model, opt, kept in zip(models, opts, mine, strict=True):
                kept += train(model, opt, 1)
    for dbg, kept, model in zip((first, second), mine, models, strict=True):
        assert losses(dbg) == kept
        record = read(dbg)
        assert record.facts.run.steps == 15
        assert record.facts.run.notes[m.N_BACKWARDS] == 15
        assert {p.name for p in record.facts.params} == {n for n, _ in model.named_parameters()}
        assert len(record.facts.optimizers) == (1 if optimizers else 0)


@pytest.mark.usefixtures("sometimes")
def test_one_half_of_a_gan(watch: Watch, read: Read, losses: Losses) -> None:
    """The other half's parameters are no hidden ones, and its losses are not ours."""
    gan = Gan()
    with watch(gan.gen) as dbg:
        _, generator = train_gan(gan, 15)
    assert losses(dbg) == generator
    record = read(dbg)
    assert {p.name for p in record.facts.params} == {n for n, _ in gan.gen.named_parameters()}


def test_an_input_that_requires_grad_is_no_parameter(
    mlp: nn.Module, watch: Watch, read: Read
) -> None:
    optimizer = sgd(mlp)
    with watch(mlp, optimizer) as dbg:
        for _ in range(3):
            x = torch.randn(8, 4, requires_grad=True)
            mlp(x).sum().backward()
            optimizer.step()
    assert len(read(dbg).facts.params) == 4


# -- zeroing, rates, clipping ------------------------------------------------------------


@pytest.mark.parametrize("how", ["none", "zeros", "model", "manual", "missing"])
def test_a_missing_zero_grad_shows(how: str, mlp: nn.Module, watch: Watch, read: Read) -> None:
    optimizer = sgd(mlp, 0.001)
    norms = []
    with watch(mlp, optimizer) as dbg:
        for _ in range(4):
            if how in ("none", "zeros"):
                optimizer.zero_grad(set_to_none=how == "none")
            elif how == "model":
                mlp.zero_grad()
            elif how == "manual":
                for p in mlp.parameters():
                    p.grad = None
            norms.append(
                sum(float(p.grad.norm()) ** 2 for p in mlp.parameters() if p.grad is not None)
                ** 0.5
            )
            mlp(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    left = carried(read(dbg))
    assert left == pytest.approx(norms[1:], rel=1e-5)
    assert (min(left) > 0) == (how == "missing")


def test_learning_rates(mlp: nn.Module, watch: Watch, read: Read) -> None:
    optimizer = torch.optim.SGD(
        [
            {"params": mlp[0].parameters(), "lr": torch.tensor(0.5)},
            {"params": mlp[2].parameters()},
        ],
        lr=0.25,
    )
    with watch(mlp, optimizer) as dbg:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        for _ in range(5):
            mlp(torch.randn(8, 4)).sum().backward()
            optimizer.step()
            schedule.step()
    record = read(dbg)
    rates = [record.series(Kind.OPTIMIZER, f"0.{g}", m.O_LR).values.tolist() for g in (0, 1)]
    assert rates == [[0.5, 0.5, 0.25, 0.25, 0.125], [0.25, 0.25, 0.125, 0.125, 0.0625]]
    assert record.facts.run.notes[m.N_SCHEDULER] == "StepLR"
    taken = record.series(Kind.OPTIMIZER, "scheduler.0", m.O_SCHEDULED).values.tolist()
    assert taken == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("iterator", [False, True])
def test_clipping(iterator: bool, mlp: nn.Module, watch: Watch, read: Read) -> None:
    optimizer = sgd(mlp)
    norms = []
    with watch(mlp, optimizer) as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            (100 * mlp(torch.randn(8, 4))).square().mean().backward()
            params = mlp.parameters() if iterator else list(mlp.parameters())
            norms.append(nn.utils.clip_grad_norm_(params, 0.5).item())
            optimizer.step()
        nn.utils.clip_grad_norm_(mlp[0].weight, 0.5)  # one tensor will do, too
    record = read(dbg)
    assert record.series(Kind.OPTIMIZER, "0", m.O_CLIP_NORM).values.tolist()[:3] == norms
    assert set(record.series(Kind.OPTIMIZER, "0", m.O_CLIP_LIMIT).values) == {0.5}
    clipped = [record.series(Kind.PARAM, n, m.P_GRAD).values for n, _ in mlp.named_parameters()]
    assert np.sqrt(np.square(clipped).sum(0)) == pytest.approx([0.5] * 3, rel=1e-4)
    assert m.N_CLIP_BEFORE_UNSCALE not in record.facts.run.notes


# -- loss scaling ------------------------------------------------------------------------


def amp(
    model: nn.Module, watch: Any, scale: float, steps: int = 4, clip: str = "", **settings: Any
) -> tuple[NeuralDbg, list[float], list[float]]:
    """Train in float16 with a loss scaler; losses and gradient norms as the user knows them."""
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2, **settings)
    losses, norms = [], []
    with watch(model, optimizer) as dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(8, 4)).square().mean()
            scaler.scale(loss).backward()
            if clip == "before":
                nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            scaler.unscale_(optimizer)
            if clip == "after":
                nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            norms.append(float(model[0].weight.grad.norm()))
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return dbg, losses, norms


def test_scaled_losses_are_told_unscaled(mlp: nn.Module, watch: Watch, read: Read) -> None:
    twin = copy.deepcopy(mlp)
    torch.manual_seed(4)
    dbg, losses, norms = amp(mlp, watch, 1024.0)
    record = read(dbg)
    assert record.series(Kind.LOSS, "loss", m.L_VALUE).values.tolist() == losses
    grads = record.series(Kind.PARAM, "0.weight", m.P_GRAD)
    assert grads.values == pytest.approx(norms, rel=1e-5)
    notes = record.facts.run.notes
    assert (notes[m.N_SCALER], notes[m.N_AUTOCAST]) == (True, "float16")
    assert record.series(Kind.OPTIMIZER, "0", m.O_SCALE).values[0] == 1024
    (fact,) = record.facts.losses
    assert [(part.reduction, part.factor) for part in fact.parts] == [("mean", 1.0)]
    torch.manual_seed(4)
    plain = read(amp(twin, watch, 1.0)[0])
    for metric in (m.GRAD_RMS, m.GRAD_ABSMAX):
        scaled, unscaled = (r.series(Kind.MODULE, "0", metric).values for r in (record, plain))
        assert scaled == pytest.approx(unscaled, rel=0.02)


def test_steps_that_a_scaler_skips_are_steps(mlp: nn.Module, watch: Watch, read: Read) -> None:
    """The first scale overflows: gradients are infinite, and the step is left out."""
    dbg, losses, norms = amp(mlp, watch, 2.0**40, steps=6, backoff_factor=2.0**-16)
    record = read(dbg)
    skipped = sum(not np.isfinite(norm) for norm in norms)
    assert 0 < skipped < 6
    assert record.series(Kind.LOSS, "loss", m.L_VALUE).values.tolist() == losses
    assert record.facts.run.steps == 6
    assert record.facts.run.notes[m.N_STEPS] == 6 - skipped


@pytest.mark.parametrize(("clip", "count"), [("before", 4), ("after", None), ("", None)])
def test_clipping_of_scaled_gradients_is_noted(
    clip: str, count: int | None, mlp: nn.Module, watch: Watch, read: Read
) -> None:
    dbg, *_ = amp(mlp, watch, 256.0, clip=clip)
    assert read(dbg).facts.run.notes.get(m.N_CLIP_BEFORE_UNSCALE) == count


def test_a_disabled_scaler_is_none(mlp: nn.Module, watch: Watch, read: Read) -> None:
    optimizer = sgd(mlp)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with watch(mlp, optimizer) as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(mlp(torch.randn(8, 4)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    record = read(dbg)
    assert m.N_SCALER not in record.facts.run.notes
    assert record.facts.run.steps == 3
    assert len(record.series(Kind.OPTIMIZER, "0", m.O_SCALE)) == 0


def test_several_scaled_losses(mlp: nn.Module, watch: Watch, losses: Losses) -> None:
    """Both scaled before the first backward pass."""
    optimizer = sgd(mlp)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with watch(mlp, optimizer) as dbg:
        parts = [mlp(torch.randn(8, 4)).square().mean() for _ in range(2)]
        for scaled in [scaler.scale(part) for part in parts]:
            scaled.backward()
        scaler.step(optimizer)
        scaler.update()
    assert losses(dbg) == [sum(p.item() for p in parts) / 2]


# -- passes without gradient --------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_evaluation_passes_are_counted_by_mode(
    compiled: bool, mlp: nn.Module, watch: Watch, read: Read, fresh_dynamo: Any
) -> None:
    call = torch.compile(mlp, backend="eager") if compiled else mlp
    with watch(call) as dbg:
        for training, context in ((True, torch.no_grad()), (False, torch.inference_mode())):
            mlp.train(training)
            with context:
                for _ in range(2 + training):
                    call(torch.randn(8, 4))
        mlp.train()
        call(torch.randn(8, 4)).sum().backward()
    notes = read(dbg).facts.run.notes
    assert (notes[m.N_EVAL_TRAIN_MODE], notes[m.N_EVAL_FORWARDS]) == (3, 5)


def test_flags_are_those_of_training(mlp: nn.Module, watch: Watch, read: Read) -> None:
    """Whatever they are when the run ends."""
    mlp[1].eval()
    optimizer = sgd(mlp)
    with watch(mlp, optimizer) as dbg:
        mlp(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        mlp.eval()
    flags = {f.name: f.training for f in read(dbg).facts.modules}
    assert flags == {"": True, "0": True, "1": False, "2": True}


def test_batches_and_predictions(mlp: nn.Module, watch: Watch, read: Read) -> None:
    optimizer = sgd(mlp)
    x, y = torch.randn(16, 4), torch.tensor([0] * 12 + [1] * 4)
    with watch(mlp, optimizer) as dbg:
        loss = F.cross_entropy(mlp(x), y)
        loss.backward()
        optimizer.step()
    record = read(dbg)

    def value(kind: Kind, name: str, metric: str) -> float:
        series: Series = record.series(kind, name, metric)
        return float(series.values[0])

    assert value(Kind.BATCH, "input", m.B_STD) == pytest.approx(x.std(correction=0).item(), 1e-4)
    assert value(Kind.BATCH, "target", m.B_MAJORITY) == 0.75
    assert value(Kind.BATCH, "target", m.B_DISTINCT) == 2
    assert value(Kind.LOSS, "prediction", m.L_PRED_STD) > 0


@pytest.mark.parametrize("optimizer", [True, False])
def test_units_that_start_equal_are_followed(
    optimizer: bool, mlp: nn.Module, watch: Watch, read: Read
) -> None:
    """Only those: a start that training makes unequal is no fault."""
    nn.init.constant_(mlp[0].weight, 0.5)
    mine = []
    opt = sgd(mlp) if optimizer else None
    with watch(mlp) as dbg:
        for _ in range(4):
            mlp(torch.randn(8, 4)).square().mean().backward()
            if opt is not None:
                opt.step()
            rows = mlp[0].weight.detach()
            mine.append(float((rows - rows.mean(0)).square().mean().sqrt() / rows.norm()))
    record = read(dbg)
    assert {n for n, _ in record.each(Kind.PARAM, m.P_ROWS)} == {"0.weight"}
    spread = record.series(Kind.PARAM, "0.weight", m.P_ROWS).values
    mine = mine[-len(spread) :]  # without an optimizer, the first look makes them known
    assert len(mine) >= 3
    assert spread == pytest.approx(np.array(mine) * mlp[0].weight.numel() ** 0.5, rel=1e-3)
    assert record.param("0.weight").row_spread == 0
    assert (spread[-1] > 0) == optimizer


def test_losses_on_a_device_are_taken_in_as_they_arrive(
    mlp: nn.Module, monkeypatch: pytest.MonkeyPatch, watch: Watch, train: Train, losses: Losses
) -> None:
    """Each goes to its own step, however late; the last ones are waited for."""
    from neuraldbg.torch.seen import LossSide

    settle, arrived = LossSide.settle, LossSide.arrived

    def send(self: LossSide, index: int, step: int, *, closure: bool) -> None:
        number = settle(self, index, step, closure=closure)
        if number is not None:
            channel = next(c for c in self._steps._index if c.kind == Kind.LOSS)
            self._steps._present[self._steps._index[channel]] = False
            self._late.send(step, channel, torch.tensor(number, dtype=torch.float64))

    def late(self: LossSide, *, wait: bool) -> Any:
        return arrived(self, wait=wait) if wait or len(self._late._queue) > 3 else iter(())

    monkeypatch.setattr(LossSide, "settle", send)
    monkeypatch.setattr(LossSide, "arrived", late)
    told: list[tuple[int, float]] = []
    optimizer = sgd(mlp)
    with watch(mlp, optimizer) as dbg:
        dbg._watch.on_step = lambda step, loss: told.append((step, loss))
        mine = train(mlp, optimizer, 10)
    assert losses(dbg) == [x for _, x in told] == mine
    assert [step for step, _ in told] == list(range(10))


def test_gradients_that_are_asked_for_by_hand_have_a_loss(
    mlp: nn.Module, watch: Watch, read: Read
) -> None:
    """`torch.autograd.grad` and `p.grad = ...`, as without a backward pass."""
    opt = sgd(mlp)
    params = list(mlp.parameters())
    with watch(mlp) as dbg:
        for _ in range(6):
            loss = mlp(torch.randn(8, 4)).square().mean()
            for param, grad in zip(params, torch.autograd.grad(loss, params), strict=True):
                param.grad = grad
            opt.step()
    record = read(dbg)
    assert len(record.series(Kind.LOSS, "loss", m.L_VALUE)) == 6
    assert record.facts.losses[0].kind != "compiled"


def test_the_inner_loss_of_meta_learning_is_not_the_outer_one(
    mlp: nn.Module, watch: Watch, read: Read
) -> None:
    opt = sgd(mlp)
    params = list(mlp.parameters())
    told = []
    with watch(mlp) as dbg:
        for _ in range(6):
            torch.autograd.grad(100 * mlp(torch.randn(8, 4)).square().mean(), params)
            opt.zero_grad()
            loss = mlp(torch.randn(8, 4)).square().mean()
            loss.backward()
            opt.step()
            told.append(loss.item())
    seen = read(dbg).series(Kind.LOSS, "loss", m.L_VALUE).values
    assert seen == pytest.approx(told)
