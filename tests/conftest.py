"""A real browser for whatever makes pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium. Where there is none, a failure in CI and a skip elsewhere."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        said = "no chromium on the PATH; on Debian: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(said)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in CI, cannot have Chromium's sandbox; the pages are our own.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
