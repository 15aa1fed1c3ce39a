"""Attention."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg.core.causes.attention import _query_key
from neuraldbg.core.facts import Kind
from neuraldbg.core.view import View

from ..records import Draft, classifier
from .blame import accused, blamed, confidence, convict, texts


def attending(start: float = 1.0, end: float = 60.0, names: str = "q k") -> Draft:
    """Queries and keys that grow together while nothing is learnt."""
    draft = classifier().stays().module("attn", "Attention", leaf=False, before="fc2")
    for name in names.split():
        draft.layer(f"attn.{name}", 64, 64, before="fc2")
        draft.of_module(f"attn.{name}", act_rms=np.geomspace(start, end, 50))
    return draft


@pytest.mark.parametrize("names", ["q k", "q_proj k_proj", "to_q to_k", "query key", "wq wk"])
def test_logits_that_grow_to_thousands_make_attention_unstable(names: str) -> None:
    best = convict(attending(names=names), "unstable_attention", where="attn")
    assert "query times key scale at attn goes from 4" in texts(best)


def test_wide_heads_add_up_to_larger_logits() -> None:
    draft = attending().change_module("attn.q", config={"out_features": 1024})
    best = convict(draft, "unstable_attention", where="attn")
    assert "query times key scale at attn goes from 16" in texts(best)


def test_growing_attention_with_which_the_run_learns_is_no_fault() -> None:
    assert accused(attending().falls(2.3, 0.1)) == []


def test_queries_and_keys_of_a_usual_scale_are_not_blamed() -> None:
    assert "unstable_attention" not in accused(attending(0.5, 0.6))


def test_a_query_without_a_key_is_no_attention() -> None:
    assert "unstable_attention" not in accused(attending(names="q v"))


def test_without_activations_attention_is_not_judged() -> None:
    assert "unstable_attention" not in accused(attending().without("act_rms"))


def test_normalised_queries_and_keys_are_judged_after_their_norm() -> None:
    draft = attending()
    for name in ("q_norm", "k_norm"):
        draft.module(f"attn.{name}", "RMSNorm", before="fc2")
    assert "unstable_attention" not in accused(draft)


def test_attention_at_the_root_of_the_model_is_seen() -> None:
    draft = classifier().stays()
    for name in ("q", "k"):
        draft.layer(name, 64, 64, before="fc2").of_module(name, act_rms=60.0)
    assert blamed(draft).cause == "unstable_attention"


def test_the_worst_of_several_is_named() -> None:
    draft = attending(end=20.0)
    draft.module("late", "Attention", leaf=False, before="fc2")
    for name in ("q", "k"):
        draft.layer(f"late.{name}", 64, 64, before="fc2").of_module(f"late.{name}", act_rms=90.0)
    convict(draft, "unstable_attention", where="late")


def test_pairs_come_in_the_order_of_the_modules() -> None:
    draft = classifier()
    for i in range(20):
        for name in ("q", "k"):
            draft.module(f"block{i}.{name}", "Linear")
    found = [parent for parent, _, _ in _query_key(View(draft.build(), ()))]
    assert found == [f"block{i}" for i in range(20)]


def looking(first: float, last: float) -> Draft:
    """Attention whose largest weight goes from one number to another."""
    draft = classifier().stays().module("attn", "Attention", leaf=False, before="fc2")
    return draft.put(Kind.LOSS, "attention.0", "attention_peak", np.linspace(first, last, 50))


def test_attention_that_has_made_up_its_mind_before_training_is_unstable() -> None:
    best = convict(looking(0.97, 0.98), "unstable_attention")
    assert "97% of its weight to one entry" in texts(best)


def test_attention_that_becomes_sharp_in_training_has_learnt_to() -> None:
    assert "unstable_attention" not in accused(looking(0.2, 0.97))


def test_large_queries_whose_attention_stays_even_were_scaled_down() -> None:
    draft = attending().put(Kind.LOSS, "attention.0", "attention_peak", 0.3)
    assert confidence(draft, "unstable_attention") < confidence(attending(), "unstable_attention")
