"""Training and evaluation mode in the wrong place."""

from __future__ import annotations

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.facts import ModuleFact
from neuraldbg.core.raised import raised
from neuraldbg.core.view import BATCHNORM, DROPOUT, View, drop_probability

# Monte Carlo dropout asks several times for each input.
DRAWN = 0.5
# What torch says where a batch normalisation in training mode is given one value a channel.
BATCH_OF_ONE = "Expected more than 1 value per channel"


@cause(
    "eval_mode_training",
    "Training runs with module.eval().",
    explains="not_learning vanishing exploding zero_gradient",
    chain=(
        "normalisation uses stale running statistics and dropout is off",
        "activations are not normalised",
        "training stalls or overfits",
    ),
    repair="Call model.train() before training, and again after each evaluation.",
    experiment="model.train()",
)
def _eval_mode_training(view: View) -> Finding | None:
    modal = [
        x
        for x in view.facts.modules
        if x.order is not None
        and (x.kind in BATCHNORM or (x.kind in DROPOUT and drop_probability(x) > 0))
    ]
    off = [x for x in modal if x.training is False and not _frozen(view, x)]
    if not off or len(off) < len(modal) / 2:
        return None
    norms = [x for x in off if x.kind in BATCHNORM]
    found = [
        evidence(
            f"{len(off)} of {len(modal)} normalisation and dropout modules are in eval mode during training steps",
            4.0 if norms else 3.0,
            where=off[0].name,
        )
    ]
    found.append(view.fails(2.0, 1.5))
    names = tuple(x.name for x in off)
    parents = tuple(dict.fromkeys(n.rpartition(".")[0] for n in names if "." in n))
    return Finding(tuple(found), (*parents, *names), 0, f"{off[0].name} trains in eval mode.")


def _frozen(view: View, module: ModuleFact) -> bool:
    """A frozen part of the model in eval mode is fine-tuning as it should be."""
    own = view.params_of(module.name)
    if own:
        return all(not p.requires_grad for p in own)
    parent = module.name.rpartition(".")[0]
    around = [p for p in view.facts.params if not parent or p.name.startswith(parent + ".")]
    return bool(around) and all(not p.requires_grad for p in around)


@cause(
    "train_mode_inference",
    "Evaluation runs with module.train().",
    chain=(
        "dropout is active and normalisation uses the statistics of the evaluation batch",
        "evaluation results are wrong although training is fine",
    ),
    repair="Call model.eval() before evaluating (and model.train() afterwards).",
    experiment="model.eval()",
)
def _train_mode_inference(view: View) -> Finding | None:
    modal = [
        x
        for x in view.facts.modules
        if x.kind in BATCHNORM or (x.kind in DROPOUT and drop_probability(x) > 0)
    ]
    passes, wrong = view.count(m.N_EVAL_FORWARDS), view.count(m.N_EVAL_TRAIN_MODE)
    if not modal or not wrong or wrong < passes:
        return None
    norms = any(x.kind in BATCHNORM for x in modal)
    found = [
        evidence(
            f"all {passes} forward passes without gradient ran in training mode",
            3.5,
            where=modal[-1].name,
        ),
        evidence(
            f"the model has {len(modal)} dropout or batch normalisation modules",
            2.0 if norms else 1.5,
        ),
    ]
    single = raised(view, BATCH_OF_ONE, "one sample has no statistics of its own")
    if single is not None:
        found.append(single)
    again = view.count(m.N_EVAL_AGAIN)
    if not norms and again >= DRAWN * min(wrong, m.EVAL_COMPARED):
        text = f"{again} of them had the input of the pass before: answers are drawn on purpose"
        found.append(evidence(text, -5.0))
    if len(view.models) > 1:
        text = f"{len(view.models)} models train together: one may draw samples for the other"
        found.append(evidence(text, -4.0))
    return Finding(
        tuple(found),
        tuple(x.name for x in reversed(modal)),
        None,
        "The model is evaluated in training mode.",
    )
