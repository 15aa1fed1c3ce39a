"""Make the pictures of the documentation: the demo's report in a real browser.

    neuraldbg demo --backend eager
    python docs/screenshots.py last

Needs Chromium on the PATH, and playwright.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from neuraldbg.cli import main

HERE = Path(__file__).parent / "pictures"
WANTED = (("report-answer", "#answer", "light"), ("report-model", "#maps-heading", "dark"))


def take(run: str) -> None:
    """Two pictures: the answer in the light scheme, the model in the dark one."""
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        main(["report", run, "-o", str(page)])
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, section, scheme in WANTED:
            shown = browser.new_page(viewport={"width": 1000, "height": 800}, color_scheme=scheme)
            shown.goto(page.as_uri())
            shown.locator(section).evaluate("e => e.scrollIntoView()")
            shown.screenshot(path=str(HERE / f"{name}.png"))
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1] if len(sys.argv) > 1 else "last")
