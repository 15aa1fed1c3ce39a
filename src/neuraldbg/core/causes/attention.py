"""Faults of attention."""

from __future__ import annotations

import math

import numpy as np

from neuraldbg.core import metrics as m
from neuraldbg.core.causes import Finding, cause, evidence
from neuraldbg.core.causes.learning_rate import FAR_TOO_LARGE
from neuraldbg.core.diagnosis import Evidence
from neuraldbg.core.facts import Kind
from neuraldbg.core.view import View

EARLY = 5  # looks
# Weights drawn as usual make logits of about 1, and a softmax over four such numbers or more gives
# its largest less than 0.6 on average; logits of 8 and more give it 0.9.
ONE_HOT, SPREAD = 0.9, 0.6


# Where a layer does not tell them: its width, and how many heads share it.
USUAL_WIDTH, USUAL_HEADS = 64, 4


@cause(
    "unstable_attention",
    "Attention logits grow until the softmax collapses to single entries.",
    explains="not_learning diverged nonfinite vanishing huge_updates zero_gradient",
    chain=(
        "queries and keys grow",
        "attention logits reach hundreds and the softmax becomes one-hot",
        "its gradient vanishes and the loss spikes or stalls",
    ),
    repair="Normalise queries and keys (QK layer norm), or scale the logits by 1/sqrt(d).",
    experiment="normalise q and k, or scale logits",
    references=("Dehghani et al., Scaling ViT to 22B, 2023", "Zhai et al., entropy collapse, 2023"),
    yields_to="unnormalized_input init_too_large missing_zero_grad optimizer_misconfigured "
    "lr_schedule wrong_update_sign",
)
def _unstable_attention(view: View) -> Finding | None:
    grown = _grown(view)
    sharp = _sharp_from_start(view)
    if not grown and (sharp is None or sharp.weight < 0):
        return None
    found = [view.fails(2.5, 4.0)]
    if sharp is not None:
        found.append(sharp)
    told = "Attention gives nearly all weight to one entry from the start."
    names: tuple[str, ...] = ()
    if grown:
        name, start, peak = grown[0]
        weight = float(np.clip(2.0 * math.log10(max(peak, 1e-9) / 20.0), -3.0, 4.0))
        text = (
            f"query times key scale at {name} goes from {start:.3g} to {peak:.3g} (logits of that "
            "size make the softmax one-hot)"
        )
        found.insert(0, evidence(text, weight, where=name))
        names = tuple(n for n, _, top in grown if top > peak / 10)
        if sharp is None or sharp.weight < 0:
            told = f"The attention logits of {name} grow to about {peak:.3g}."
    if view.pace > FAR_TOO_LARGE:
        text = f"each step changes the weights by {view.pace:.3g} of themselves: everything grows"
        found.append(evidence(text, -3.0))
    return Finding(tuple(found), names, 0, told)


def _grown(view: View) -> list[tuple[str, float, float]]:
    """(attention module, first, last scale of query times key), the largest first."""
    scales = [
        (name, _product(view, q, k, last=False), _product(view, q, k, last=True))
        for name, q, k in _query_key(view)
    ]
    return sorted((g for g in scales if math.isfinite(g[2])), key=lambda g: -g[2])


def _sharp_from_start(view: View) -> Evidence | None:
    """Whether attention that is not trained yet has made up its mind already."""
    read = [s.finite().values for _, s in view.record.each(Kind.LOSS, m.L_ATTENTION_PEAK)]
    read = [v for v in read if len(v)]
    if not read:
        return None
    peak = max(float(np.median(v[:EARLY])) for v in read)
    late = max(float(np.median(v[-EARLY:])) for v in read)
    text = f"attention gives {peak:.0%} of its weight to one entry of a row in the first looks"
    if peak > ONE_HOT:
        return evidence(text, 4.5, step=0, peak=peak)
    spread = max(peak, late) < SPREAD
    return evidence(f"attention gives {late:.0%} to one entry at most", -3.0) if spread else None


def _query_key(view: View) -> list[tuple[str, str, str]]:
    """(attention module, query projection, key projection) by the usual names."""
    names = dict.fromkeys(x.name for x in view.facts.modules)
    out = []
    for query, key in (
        ("q", "k"),
        ("to_q", "to_k"),
        ("q_proj", "k_proj"),
        ("query", "key"),
        ("wq", "wk"),
        ("W_q", "W_k"),
        ("q_norm", "k_norm"),
    ):
        for name in names:
            parent, _, last = name.rpartition(".")
            other = f"{parent}.{key}" if parent else key
            if last == query and other in names:
                out.append((parent, name, other))
    normed = {p for p, q, _ in out if q.endswith("q_norm")}
    return [x for x in out if x[0] not in normed or x[1].endswith("q_norm")]


def _product(view: View, query: str, key: str, *, last: bool) -> float:
    def scale(name: str) -> float:
        values = view.module(name, m.ACT_RMS).finite().values
        if not len(values):
            return float("nan")
        return float(np.median(values[-20:])) if last else float(values[0])

    width = next(
        (x.config.get("out_features") for x in view.facts.modules if x.name == query), None
    )
    usual = width if isinstance(width, int) and width > 0 else USUAL_WIDTH
    return scale(query) * scale(key) * math.sqrt(usual / USUAL_HEADS)
