"""Looks of a page: settled, photographed, and judged by axe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[3]
AXE = ROOT / "console/node_modules/axe-core/axe.min.js"
# Where people look at them; the best are in the docs.
SHOTS = Path(os.environ.get("MOLDAU_SCREENSHOTS", ROOT / ".cache/screenshots"))


def settled(page: Page, text: str = "") -> None:
    """Wait until a page shows what it has, this among it."""
    from playwright.sync_api import expect

    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Loading")).to_have_count(0)
    if text:
        # A dialog hides the page behind it from readers of the screen.
        expect(page.locator("main, dialog").filter(has_text=text).first).to_be_visible()


def photographed(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def let_axe_in(page: Page) -> None:
    """Let axe run, which is no script of the page: its policy allows no others."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `make console`")
    page.context.new_cdp_session(page).send("Page.setBypassCSP", {"enabled": True})
    page.reload()


def wrong(page: Page, *rules: str) -> list[str]:
    """Return what axe finds serious or worse, by all of its rules or by these."""
    page.add_script_tag(path=AXE)
    asked: dict[str, Any] = {"resultTypes": ["violations"]}
    found = page.evaluate(
        "(asked) => axe.run(document, asked)", asked | ({"runOnly": list(rules)} if rules else {})
    )
    return [
        f"{page.url}: {each['id']}: {node['html'][:160]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
