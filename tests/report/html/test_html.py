"""The page: self-contained, the same each time, and no name can become markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.core.record import Record
from neuraldbg.report.html import embedded, render

from ..recorded import bare, record
from ..samples import ALL, EVIL, failed, healthy, unseen


class Elements(HTMLParser):
    """Elements and the addresses they name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
@pytest.mark.parametrize("known", [record((EVIL, "b")), bare()], ids=["read", "bare"])
def test_nothing_is_loaded_and_no_name_becomes_markup(
    known: Record, make: Callable[[], Diagnosis]
) -> None:
    elements = Elements(render(known, make()))
    addresses = [
        value or ""
        for _, attributes in elements.found
        for key, value in attributes.items()
        if key in ("href", "src", "srcset", "action", "data")
    ]
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in addresses)
    assert len(elements.named("script")) == 2
    assert not elements.named("b")
    assert not elements.named("link")


def test_every_id_is_there_once_and_every_reference_leads_somewhere() -> None:
    elements = Elements(render(record(), failed()))
    ids = [a["id"] for _, a in elements.found if "id" in a]
    assert len(ids) == len(set(ids))
    inner = [(a.get("href") or "").removeprefix("#") for a in elements.named("a")]
    assert set(inner) <= set(ids)
    assert "figure-evidence-0" in inner
    labelled = [
        name for _, a in elements.found for name in (a.get("aria-labelledby") or "").split()
    ]
    assert set(labelled) <= set(ids)


def test_the_same_run_gives_the_same_bytes() -> None:
    assert render(record(), failed()) == render(record(), failed())


def test_the_answer_comes_first() -> None:
    page = render(record(), failed())
    order = [
        "FAILED:",
        "lr_too_high",
        "blocks.0 ... blocks.11 (12)",
        "step 3",
        "very likely (0.93)",
        "Lower the learning rate to 0.1",
        "How it led there",
        "The run",
        "The model, step by step",
        "The evidence",
        "What else it could be",
        "What could not be seen",
        "How to see it again",
    ]
    body = page[page.index("<main") :]
    places = [body.index(said) for said in order]
    assert places == sorted(places)


def test_a_healthy_run_says_so_in_one_line_first() -> None:
    page = render(record(), healthy())
    heading = re.search(r"<h1>(.*?)</h1>", page)
    assert heading is not None
    assert heading[1].startswith("HEALTHY: nothing suspicious in 400 steps.")
    assert 'class="fault"' not in page
    assert "The evidence" not in page


def test_how_a_failed_run_ended_stands_on_top() -> None:
    found = failed()
    run = replace(found.facts.run, finished="exception", notes={"exception": "ValueError: <x>"})
    known = record()
    crashed = Record(replace(known.facts, run=run), known.channels)
    page = render(crashed, replace(found, facts=replace(found.facts, run=run)), "r")
    assert "<p>The script ended with ValueError: &lt;x&gt;.</p>" in page
    assert "<code>neuraldbg verify r</code>" in page
    assert "1 change of state" in render(known, replace(found, events=found.events[:1]), "r")


def test_a_run_in_which_nothing_was_seen_is_not_called_healthy() -> None:
    page = render(bare(), unseen())
    assert "NOTHING SEEN" in page
    assert "HEALTHY:" not in page


def test_secrets_and_places_stay_out() -> None:
    page = render(record(), failed())
    assert "sesame" not in page
    assert "/somewhere/private" not in page


def test_the_script_finds_numbers_for_every_picture() -> None:
    page = render(record(), failed())
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert text is not None
    data = json.loads(text[1])
    figures = [a["data-picture"] for a in Elements(page).named("figure") if "data-picture" in a]
    assert set(figures) == set(data["pictures"])
    assert data["pictures"]["grad-norm"]["lines"][0]["values"][-2:] == ["nan", "inf"]


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded({EVIL: [float("nan"), EVIL]})
    assert not set(text) & set("<>&")
    assert json.loads(text) == {EVIL: ["nan", EVIL]}


def test_a_usual_page_is_small() -> None:
    names = tuple(f"blocks.{i}.{part}" for i in range(24) for part in ("attn", "mlp"))
    assert len(render(record(names, steps=2000), failed()).encode()) < 1_500_000
