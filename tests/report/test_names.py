"""Names fit for people."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.report import json, names, words
from neuraldbg.report.names import collapse, listing, plain


@pytest.mark.parametrize("module", [json, names, words], ids=lambda m: str(m.__name__))
def test_the_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@given(st.text())
def test_plain_is_one_printable_line(text: str) -> None:
    assert plain(text).isprintable()


def test_two_neighbours_are_named() -> None:
    assert collapse(["h.0", "h.1"]) == ["h.0", "h.1"]


def test_a_hole_splits_a_range() -> None:
    assert collapse([f"h.{i}.w" for i in (0, 1, 2, 7, 8, 9)]) == [
        "h.0.w ... h.2.w (3)",
        "h.7.w ... h.9.w (3)",
    ]


def test_the_root_has_a_name() -> None:
    assert listing([""]) == "the whole model"


@given(st.lists(st.from_regex(r"[a-c](\.[0-9]{1,2}){0,2}(\.w)?", fullmatch=True), max_size=30))
def test_no_name_is_lost(found: list[str]) -> None:
    counted = 0
    for shown in collapse(found):
        counted += int(shown.rpartition("(")[2][:-1]) if " ... " in shown else 1
    assert counted == len(set(found))
