"""The HTML fragment: well-formed, escaped, and without script."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.report.notebook import fragment

from .samples import ALL, evil, failed, healthy

VOID = {"br", "img"}
KNOWN = {"div", "p", "strong", "b", "br", "small", "img", "details", "summary", "ul", "li"}


class Checker(HTMLParser):
    """Collects tags and sees that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_the_fragment_is_well_formed_and_holds_no_script(make: Callable[[], Diagnosis]) -> None:
    checker = Checker()
    checker.feed(fragment(make()))
    assert not checker.open
    assert checker.tags <= KNOWN
    assert checker.attributes <= {"style", "open", "src", "alt"}


def test_names_are_escaped() -> None:
    assert "<b>&quot;" not in fragment(evil())
    assert "&lt;/script&gt;&lt;b&gt;&quot;]" in fragment(evil())


def test_it_says_what_the_text_says() -> None:
    html = fragment(failed())
    for said in ("The loss became NaN", "very likely (0.93)", "Lower the learning rate"):
        assert said in html
    assert "nothing suspicious" in healthy()._repr_html_()
