"""The local page: who may read it, and that it follows a run that trains."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from neuraldbg.cli import main
from neuraldbg.cli.view import Server, serve
from neuraldbg.core import metrics
from neuraldbg.core.facts import Channel, Kind, ModuleFact, RunFact
from neuraldbg.store.writer import RunWriter

from .conftest import RUN_ID

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def server(runs: Path) -> Iterator[Server]:
    """Serving the folder of runs."""
    started = serve(runs)
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield started
    started.shutdown()
    thread.join()
    started.server_close()


def ask(server: Server, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", path, headers={"Host": host or server.host})
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    return answer.status, said


def test_it_listens_on_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address.startswith("http://127.0.0.1:")


def test_without_the_token_nothing_is_told(server: Server, recorded: Path) -> None:
    assert ask(server, f"/{server.token}/")[0] == 200
    for path in ("/", "/wrong/", f"/{server.token[:-1]}/", f"/wrong/run?id={RUN_ID}"):
        assert ask(server, path) == (404, "not found\n")


def test_a_foreign_page_cannot_ask_under_another_name(server: Server) -> None:
    assert ask(server, f"/{server.token}/", host="evil.example")[0] == 404


@pytest.mark.parametrize("run", ["../secret", "/etc/passwd", "last", "", "%00"])
def test_only_runs_of_the_folder_are_served(server: Server, recorded: Path, run: str) -> None:
    assert ask(server, f"/{server.token}/run?id={run}")[0] == 404


def test_the_report_is_the_one_that_report_writes(
    server: Server, recorded: Path, tmp_path: Path
) -> None:
    assert main(["report", RUN_ID, "-o", str(tmp_path / "a.html")]) == 0
    served = ask(server, f"/{server.token}/report.html?id={RUN_ID}")
    assert served == (200, (tmp_path / "a.html").read_text(encoding="utf-8"))


def test_a_page_that_is_not_there_is_not_found(server: Server) -> None:
    assert ask(server, f"/{server.token}/moon")[0] == 404
    assert ask(server, f"/{server.token}/compare?a=1")[0] == 404


def test_a_folder_or_port_that_cannot_be_is_named(
    capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    assert main(["view", "nowhere-at-all"]) == 2
    assert main(["view", "--port", str(server.server_port)]) == 2
    assert "leave --port out" in capsys.readouterr().err


def test_a_run_is_followed_while_it_trains(
    browser: Browser, server: Server, recorded: Path, runs: Path
) -> None:
    writer = RunWriter(runs / "20260103-000000-live-cafe.ndbg", RunFact("live", ("train.py",)))
    writer.modules([ModuleFact("only", "Linear", order=0)])
    writer.channels(metrics.STEP, [Channel(Kind.LOSS, "loss", metrics.L_VALUE)])
    for step in range(10):
        writer.frame(metrics.STEP, step, np.array([2.0 / (step + 1)]))
    assert writer.flush()
    context = browser.new_context()
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda m: troubles.append(m.text))
    page.on("pageerror", lambda e: troubles.append(str(e)))
    own = (server.address, "data:")
    page.on("request", lambda r: r.url.startswith(own) or troubles.append(r.url))
    page.goto(server.address)
    page.get_by_role("link", name="20260103-000000-live-cafe").click()
    page.evaluate("window.kept = true")
    assert "at step 9" in page.locator("#figure-loss figcaption").inner_text()
    for step in range(10, 20):
        writer.frame(metrics.STEP, step, np.array([2.0 / (step + 1)]))
    assert writer.flush()
    page.locator("#figure-loss figcaption", has_text="at step 19").wait_for()
    assert page.evaluate("window.kept")
    assert "running" in page.locator("#state").inner_text()
    page.locator("#figure-loss").focus()
    page.keyboard.press("End")
    assert page.locator("#figure-loss .readout").inner_text().startswith("step 19:")
    writer.close()
    page.get_by_role("link", name="The report as a file").click()
    assert page.locator("#figure-loss").is_visible()
    page.goto(server.address)
    page.get_by_role("button", name="Compare two").click()
    assert page.locator("#loss .line").count() == 2
    context.close()
    assert troubles == []
