"""`diagnosis.verify(train)`: experiments for training that is a function."""

from __future__ import annotations

from collections.abc import Callable

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.record import Record
from neuraldbg.core.trainings import that_began
from neuraldbg.errors import UsageError
from neuraldbg.experiments.outcome import Scope
from neuraldbg.experiments.plan import plan
from neuraldbg.experiments.results import apply
from neuraldbg.experiments.verify import SEEDS, Experiment, Laboratory, Say
from neuraldbg.experiments.window import scope

Open = Callable[[Callable[[], object], Scope, float], Laboratory]


def verify(
    found: Diagnosis,
    train: Callable[[], object],
    *,
    budget: float,
    seeds: int = SEEDS,
    say: Say = print,
) -> Diagnosis:
    """Test the leading causes of a diagnosis.

    Args:
        found: The diagnosis.
        train: The training: a function without arguments that builds everything anew.
        budget: Seconds for all trials.
        seeds: Replicates at most.
        say: Told what is running.

    Raises:
        UsageError: `train` is no function, or the diagnosis has no run file.
        RunFileError: The run file cannot be read.
    """
    from importlib import import_module

    from neuraldbg.store.reader import load_record

    if not callable(train):
        msg = (
            f"verify() calls your training again and again: pass a function without arguments "
            f"that builds model, data and optimizer and trains, not a {type(train).__name__}"
        )
        raise UsageError(msg)
    if found.source is None:
        msg = "this diagnosis was not made from a run file, so there is nothing to compare with"
        raise UsageError(msg)
    record: Record = load_record(found.source)
    judged = scope(record, found.began, budget)
    # By name: what reads a run does not import torch, and this module is read by it.
    open_bench: Open = import_module("neuraldbg.torch.notebook").Bench
    tests = plan(found.hypotheses, that_began(record, found.began))
    bench = open_bench(train, judged, budget)
    findings = Experiment(record, tests, bench, judged, say).run(seeds)
    data = findings.as_data()
    if not data["reproduced"]:
        say(f"did not reproduce: {data['differed']}")
    return apply(found, data)
