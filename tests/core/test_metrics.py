"""The names of what is measured."""

from __future__ import annotations

from neuraldbg.core import metrics


def names(prefix: str) -> list[str]:
    """The values of the constants with a prefix."""
    return [v for k, v in vars(metrics).items() if k.startswith(prefix) and isinstance(v, str)]


def test_metrics_of_one_kind_of_site_have_names_of_their_own() -> None:
    modules = [*names("ACT_"), *names("IN_"), *names("GRAD_")]
    for group in (modules, names("P_"), names("B_"), names("L_"), names("O_"), names("N_")):
        assert group
        assert len(set(group)) == len(group)


def test_the_two_streams_differ() -> None:
    assert metrics.STEP != metrics.LOOK
