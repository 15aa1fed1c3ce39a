"""Diagnoses made by hand, one for each shape that a report must cope with."""

from __future__ import annotations

from neuraldbg.core.diagnosis import (
    CausalHypothesis,
    Coupling,
    Diagnosis,
    Evidence,
    Link,
)
from neuraldbg.core.events import EventType, SemanticEvent
from neuraldbg.core.facts import (
    Facts,
    Gap,
    LossFact,
    ModuleFact,
    OptimizerFact,
    Overhead,
    ParamFact,
    RunFact,
)

EVIL = '</script><b>"]\n-->|x| ;%%{init}%% `#quot; \x1b[31m'


def facts(*, steps: int = 400, finished: str | None = "ok", **more: object) -> Facts:
    """Facts of a run of a small model."""
    run = RunFact(
        id="20260102-030405-abcdef",
        command=("train.py", "--lr", "10", "--api-key", "sesame"),
        cwd="/somewhere/private",
        started="2026-01-02T03:04:05Z",
        neuraldbg="0.1.0",
        python="3.11.7",
        torch="2.13.0+cpu",
        steps=steps,
        finished=finished,
        **more,  # type: ignore[arg-type]
    )
    modules = tuple(ModuleFact(f"blocks.{i}", "Linear", order=i) for i in range(12))
    params = tuple(ParamFact(f"blocks.{i}.weight", (8, 8), optimizer=0) for i in range(12))
    optimizers = (OptimizerFact(0, "SGD", ({"lr": 10.0},), 12, steps=steps),)
    losses = (LossFact(kind="cross_entropy", reduction="mean", ops=("NllLoss", "LogSoftmax")),)
    return Facts(run, modules, params, optimizers, losses)


def healthy() -> Diagnosis:
    """Nothing is wrong."""
    return Diagnosis(
        facts(),
        "healthy",
        events=events()[:1],
        overhead=Overhead(0.012, 0.41),
        headline="The loss fell from 2.303 to 0.114.",
    )


def unseen() -> Diagnosis:
    """No training was seen."""
    gaps = (Gap("training", "no optimizer step was seen in this process"),)
    return Diagnosis(facts(steps=0), "healthy", gaps=gaps)


def events() -> tuple[SemanticEvent, ...]:
    """Twelve layers that explode, then a loss that is NaN."""
    layers = tuple(
        SemanticEvent(
            f"g{i}",
            EventType.GRADIENT,
            f"blocks.{i}",
            20 - i,
            "healthy",
            "exploding",
            0.9,
            {"ratio": float("inf"), "norm": 12.5 * (i + 1)},
        )
        for i in range(12)
    )
    loss = SemanticEvent("l0", EventType.LOSS, "loss", 21, "diverging", "nonfinite", 1.0)
    return (*layers, loss)


def failed() -> Diagnosis:
    """One clear cause with two rivals, and gaps."""
    best = CausalHypothesis(
        cause="lr_too_high",
        confidence=0.93,
        where=tuple(f"blocks.{i}" for i in range(12)),
        first_step=3,
        summary="The learning rate of 10 is far beyond the stable range",
        chain=(
            Link("SGD steps with a learning rate of 10"),
            Link("the gradient of blocks.0 explodes", "g0"),
            Link("the gradient of blocks.11 explodes", "g11"),
            Link("the loss becomes NaN at step 21", "l0"),
        ),
        evidence=(
            Evidence("the loss is NaN from step 21 on", 0.8, "loss", 21, {"loss": float("nan")}),
            Evidence("updates are 31 times as large as the weights", 3.1, "blocks.0.weight", 3),
            Evidence("the loss rose from 2.3 to 8.1e5 within eight steps", 1.7, None, 11),
        ),
        against=(Evidence("the first update was of a usual size", -0.4, None, 0),),
        repair="Lower the learning rate to 0.1 or below, and warm it up over the first steps.",
    )
    rivals = (
        CausalHypothesis("init_too_large", 0.21, ("blocks.0",), 0, "Weights start too large"),
        CausalHypothesis("exploding_recurrence", 0.12),
    )
    gaps = (
        *(Gap(f"gradients of blocks.{i}", "the region is compiled") for i in range(12)),
        Gap("input statistics", "the batch is a custom class"),
    )
    couplings = (
        Coupling("g11", "l0", "dataflow", 0.9, "the gradient precedes the loss"),
        Coupling("g0", "gone", "backward", 0.5, "an event that is not there"),
    )
    return Diagnosis(
        facts(finished="exception", notes={"exception": "ValueError: loss is nan"}),
        "failed",
        (best, *rivals),
        events(),
        couplings,
        gaps,
        Overhead(0.018, 1.5),
        "The loss became NaN at step 21.",
    )


def together() -> Diagnosis:
    """Two faults at once, one of them tested."""
    first = CausalHypothesis(
        "missing_zero_grad",
        0.97,
        first_step=1,
        summary="Gradients pile up over optimizer steps",
        evidence=(Evidence("gradients were there before each backward", 4.0),),
        repair="Call optimizer.zero_grad() before each backward.",
        experiment={
            "intervention": "do(zero_grad before backward)",
            "reproduced": True,
            "effect": -2.1,
            "replicates": 3,
            "result": "confirmed",
        },
    )
    second = CausalHypothesis(
        "output_activation_mismatch",
        0.64,
        ("softmax",),
        summary="A softmax stands before a cross-entropy loss",
        evidence=(Evidence("the input of the loss sums to one", 2.0, "softmax", 0),),
        repair="Remove the softmax.",
    )
    return Diagnosis(facts(), "suspect", (first, second), overhead=Overhead(None, 0.2))


def evil() -> Diagnosis:
    """Names and sentences that try to become markup, or to end a label."""
    happened = (
        SemanticEvent("e0", EventType.GRADIENT, EVIL, 3, "healthy", "zero", 0.5, {EVIL: EVIL}),
        SemanticEvent("e1", EventType.LOSS, "", 4, "improving", "stalled"),
    )
    worst = CausalHypothesis(
        EVIL,
        0.8,
        (EVIL,),
        3,
        EVIL,
        (Link(EVIL, "e0"), Link(EVIL, None)),
        (Evidence(EVIL, 1.0, EVIL, 3, {EVIL: float("-inf")}),),
        (Evidence(EVIL, float("-inf")),),
        EVIL,
    )
    couplings = (Coupling("e0", "e1", EVIL, 1.0, EVIL),)
    gaps = (Gap(EVIL, EVIL),)
    return Diagnosis(
        facts(), "suspect", (worst,), happened, couplings, gaps, Overhead(0.1, 1.0), EVIL
    )


ALL = {
    "healthy": healthy,
    "unseen": unseen,
    "failed": failed,
    "together": together,
    "evil": evil,
}
