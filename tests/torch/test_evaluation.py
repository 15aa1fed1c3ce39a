"""Evaluation losses: what the user's own validation computes between training steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.core.facts import Kind
from neuraldbg.core.metrics import EVAL_COMPARED
from neuraldbg.core.record import Series
from neuraldbg.store.reader import load_record
from neuraldbg.torch.evaluation import Repetition, asked, is_evaluation

X, Y = torch.randn(16, 4), torch.randint(0, 3, (16,))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def validate(model: nn.Module, batches: int) -> float:
    with torch.no_grad():
        losses = [F.cross_entropy(model(X[i : i + 4]), Y[i : i + 4]) for i in range(batches)]
    return float(torch.stack(losses).mean())


def evaluation(path: Path) -> Series:
    return load_record(path).series(Kind.LOSS, "evaluation", "value")


def test_each_validation_makes_one_reading_at_the_step_that_follows(tmp_path: Path) -> None:
    model, out = nn.Linear(4, 3), tmp_path / "run.ndbg"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    with NeuralDbg(model, optimizer, out=out, strict=True):
        for i in range(6):
            step(model, optimizer)
            if i % 2:
                expected.append(validate(model, 3))
    seen = evaluation(out)
    assert seen.steps.tolist() == [2, 4, 6]
    assert seen.values.tolist() == pytest.approx(expected, rel=1e-6)


def test_a_loss_module_and_a_detached_prediction_count_too(tmp_path: Path) -> None:
    model, out = nn.Linear(4, 3), tmp_path / "run.ndbg"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, optimizer, out=out, strict=True):
        step(model, optimizer)
        loss = nn.CrossEntropyLoss()(model(X).detach(), Y)
        step(model, optimizer)
    assert evaluation(out).values.tolist() == pytest.approx([float(loss)])


def test_training_losses_and_losses_of_single_samples_are_no_evaluation(tmp_path: Path) -> None:
    model, out = nn.Linear(4, 3), tmp_path / "run.ndbg"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, optimizer, out=out, strict=True):
        step(model, optimizer)
        with torch.no_grad():
            F.cross_entropy(model(X), Y, reduction="none")
        step(model, optimizer)
    assert len(evaluation(out)) == 0


def test_the_loss_functions_are_the_originals_again_afterwards(tmp_path: Path) -> None:
    before = F.cross_entropy
    with NeuralDbg(nn.Linear(2, 2), out=tmp_path / "run.ndbg"):
        assert F.cross_entropy is not before
    assert F.cross_entropy is before


def test_what_counts_as_an_evaluation() -> None:
    assert is_evaluation(torch.tensor(1.0))
    assert not is_evaluation(torch.tensor(1.0, requires_grad=True))
    assert not is_evaluation(torch.ones(3))
    assert not is_evaluation(1.0)


def test_passes_with_the_input_of_the_pass_before_are_counted() -> None:
    seen = Repetition()
    for value in (X, X, X.clone(), X + 1, X, torch.empty(0), X, X.to(torch.int64)):
        seen.see(value)
    assert seen.count == 2


def test_only_the_first_passes_are_compared() -> None:
    seen = Repetition()
    for _ in range(EVAL_COMPARED + 50):
        seen.see(X)
    assert seen.count == EVAL_COMPARED - 1


def test_answers_drawn_with_dropout_are_noted(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model, optimizer, out=tmp_path / "run.ndbg"):
        step(model, optimizer)
        with torch.no_grad():
            for _ in range(5):
                model(X)
            for i in range(3):
                model(X + i + 1)
    notes = load_record(tmp_path / "run.ndbg").facts.run.notes
    assert notes["no_grad_forwards_in_train_mode"] == 8
    assert notes["no_grad_forwards_of_the_same_input"] == 4


@pytest.mark.parametrize("backend", ["", "aot_eager"])
def test_what_an_evaluation_is_given_is_read_once_for_each(tmp_path: Path, backend: str) -> None:
    model, out = nn.Linear(4, 3), tmp_path / "run.ndbg"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    call = torch.compile(model, backend=backend) if backend else model
    given = [3 * X + 5, X, X - 2]
    with NeuralDbg(model, optimizer, out=out, strict=True):
        for value in given:
            step(call, optimizer)
            model.eval()
            with torch.no_grad():
                call(value)
                call(value + 100)
            model.train()
        step(call, optimizer)
    record = load_record(out)
    mean, std = (record.series(Kind.BATCH, "evaluation", x) for x in ("mean", "std"))
    assert mean.steps.tolist() == std.steps.tolist() == [1, 2, 3]
    assert mean.values.tolist() == pytest.approx([float(x.mean()) for x in given], rel=1e-5)
    assert std.values.tolist() == pytest.approx(
        [float(x.std(correction=0)) for x in given], rel=1e-5
    )


@pytest.mark.parametrize(
    "value", [X[:3], torch.zeros(16, 4, dtype=torch.int64), torch.randn(16), X.to_sparse()]
)
def test_single_samples_and_codes_are_no_batch_of_numbers(value: torch.Tensor) -> None:
    assert asked(value) is None
