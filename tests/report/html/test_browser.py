"""The page in a real browser, from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neuraldbg.core.diagnosis import Diagnosis
from neuraldbg.report.html import render

from ..recorded import bare, record
from ..samples import EVIL, evil, failed, healthy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

Open = Callable[..., "Page"]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens the report of a run, and at the end sees that it was quiet and asked nobody."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    troubles: list[str] = []
    path = tmp_path / "report.html"

    def open_(diagnosis: Diagnosis, known: object = None, **media: str) -> Page:
        path.write_text(render(known or record(), diagnosis), encoding="utf-8")  # type: ignore[arg-type]
        page = context.new_page()
        page.emulate_media(**media)  # type: ignore[arg-type]
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        own = ("data:", path.as_uri())
        page.on("request", lambda r: r.url.startswith(own) or troubles.append(r.url))
        page.goto(path.as_uri())
        return page

    yield open_
    context.close()
    assert troubles == []


def over(page: Page, figure: str, across: float) -> tuple[float, float]:
    """A place on a picture's plot, `across` from its first step (0) to its last (1)."""
    svg = page.locator(f"#figure-{figure} svg.picture")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box is not None
    unit = box["width"] / 900
    return box["x"] + (160 + 720 * across) * unit, box["y"] + 60 * unit


def readout(page: Page, figure: str) -> Locator:
    return page.locator(f"#figure-{figure} .readout")


def steps(page: Page) -> list[int]:
    """The first and the last step in view."""
    shown = page.locator("#report").get_attribute("data-window")
    assert shown is not None
    return [int(step) for step in shown.split("-")]


def test_every_picture_is_seen(opened: Open) -> None:
    page = opened(failed())
    for name in ("causal", "loss", "lr", "grad-norm", "gradient", "evidence-0"):
        box = page.locator(f"svg#{name}").bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 50
    assert page.locator("svg#update").is_hidden()


def test_a_measure_is_chosen_by_mouse_and_by_keyboard(opened: Open) -> None:
    page = opened(failed())
    page.get_by_role("radio", name="Update to weight ratio").check()
    assert page.locator("svg#update").is_visible()
    assert page.locator("svg#gradient").is_hidden()
    page.keyboard.press("ArrowLeft")
    assert page.locator("svg#inactive").is_visible()


def test_the_pointer_reads_values_in_all_pictures_at_once(opened: Open) -> None:
    page = opened(failed())
    page.mouse.move(*over(page, "loss", 0.505))
    assert readout(page, "loss").inner_text().startswith("step 20: loss 1.395")
    assert readout(page, "lr").inner_text() == "step 20: learning rate 0.1 (step 20)"
    page.mouse.move(*over(page, "gradient", 0.505))
    assert "step 20" in readout(page, "gradient").inner_text()
    assert "blocks." in readout(page, "gradient").inner_text()


def test_dragging_zooms_all_pictures_and_a_button_shows_all_again(opened: Open) -> None:
    page = opened(failed())
    assert steps(page) == [0, 39]
    page.mouse.move(*over(page, "loss", 0.25))
    page.mouse.down()
    page.mouse.move(*over(page, "loss", 0.5), steps=4)
    page.mouse.up()
    first, last = steps(page)
    assert (abs(first - 10) <= 1, abs(last - 20) <= 1) == (True, True)
    labels = page.locator("#loss .xticks text").all_text_contents()
    assert labels
    assert all(first <= int(label) <= last for label in labels)
    boxes = {p.get_attribute("viewBox") for p in page.locator(".plot").all()}
    assert len({(box or "").split()[0] for box in boxes}) == 1
    page.get_by_role("button", name="Whole run").first.click()
    assert steps(page) == [0, 39]


def test_the_keyboard_reads_and_zooms(opened: Open) -> None:
    page = opened(failed())
    page.locator("#figure-loss").focus()
    page.keyboard.press("End")
    assert readout(page, "loss").inner_text().startswith("step 39:")
    page.keyboard.press("ArrowLeft")
    assert readout(page, "loss").inner_text().startswith("step 38:")
    assert "nan" in readout(page, "grad-norm").inner_text()
    page.keyboard.press("+")
    assert steps(page) != [0, 39]
    page.keyboard.press("0")
    assert steps(page) == [0, 39]


def test_evidence_leads_to_its_curve_and_step(opened: Open) -> None:
    page = opened(failed())
    page.get_by_role("link", name="curve at step 3", exact=False).first.click()
    assert page.url.endswith("#figure-evidence-0")
    assert readout(page, "evidence-0").inner_text().startswith("step 3:")


def test_the_dark_scheme_is_dark(opened: Open) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    assert opened(failed(), color_scheme="light").evaluate(colour) == "rgb(246, 247, 249)"
    assert opened(failed(), color_scheme="dark").evaluate(colour) == "rgb(13, 17, 23)"


def test_a_name_that_is_markup_stays_text(opened: Open) -> None:
    page = opened(evil(), record((EVIL, "b")))
    assert page.locator("b").count() == 0
    assert page.locator("script").count() == 2
    assert "</script><b>" in page.locator("#report").inner_text()
    page.mouse.move(*over(page, "gradient", 0.5))
    assert page.locator("b").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("make", [failed, healthy])
def test_no_serious_finding_of_axe(
    opened: Open, make: Callable[[], Diagnosis], scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = opened(make(), color_scheme=scheme)
    found = Axe().run(page).response["violations"]
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    assert not serious, [(v["id"], v["nodes"][0]["html"][:200]) for v in serious]


def test_it_can_be_read_without_a_script_and_printed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(record(), failed()), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.goto(path.as_uri())
    page.get_by_text("Update to weight ratio", exact=True).first.click()
    assert page.locator("svg#update").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".toolbar").first.is_hidden()
    assert page.pdf().startswith(b"%PDF")
    context.close()


def test_a_run_without_readings_opens(opened: Open) -> None:
    assert opened(healthy(), bare()).locator("h1").inner_text().startswith("HEALTHY")
