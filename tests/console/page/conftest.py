"""A browser that drives the console's page: the machine's Chromium, headless."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau.console
from moldau.console.settings import ConsoleSettings
from moldau.testing import Broker
from tests.console.consoles import RunningConsole

if TYPE_CHECKING:
    from playwright.sync_api import Page

WITHIN_MS = 20_000
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# The sandbox needs rights that containers seldom have; the rest keeps the browser off the network.
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

Opened = Callable[..., "Page"]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Open an address in a browser of its own, and fail if the page did.

    Not shared among tests: as long as Playwright runs, its thread has a running event loop.
    """
    pytest.importorskip(
        "playwright", reason="playwright is not installed: pip install '.[browser]'"
    )
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"there is no browser on the PATH: none of {', '.join(_NAMES)}")
    if not (Path(moldau.console.__path__[0]) / "page/index.html").exists():
        pytest.skip("the console's page is not built: run `make console`")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WITHIN_MS)

    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_FLAGS)

        def opened(
            address: str, *, scheme: str = "light", size: tuple[int, int] = (1360, 850)
        ) -> Page:
            context = browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if scheme == "dark" else "light",
                accept_downloads=True,
            )
            page = context.new_page()
            page.set_default_timeout(WITHIN_MS)
            page.on("pageerror", lambda problem: problems.append(str(problem)))
            page.on(
                "console",
                lambda said: problems.append(said.text) if "Security Policy" in said.text else None,
            )
            page.goto(address)
            return page

        yield opened
        browser.close()
    assert problems == []


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def own_console(own_broker: Broker) -> Iterator[RunningConsole]:
    settings = ConsoleSettings(
        own_broker.bootstrap, registry=own_broker.http_url, sample_every_s=0.5
    )
    with RunningConsole(settings) as running:
        yield running
