"""Schemas in the browser."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.console.consoles import RunningConsole
from tests.console.page.conftest import Opened

pytestmark = pytest.mark.slow


def _schema(*fields: Mapping[str, object]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


def test_a_schema_is_registered_once_it_is_compatible(
    opened: Opened, own_console: RunningConsole
) -> None:
    from playwright.sync_api import expect

    identity = {"name": "id", "type": "long"}
    page = opened(f"{own_console.url}/#/schemas")
    page.get_by_role("link", name="New schema").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Subject").fill("orders-value")
    dialog.get_by_label("Schema", exact=True).fill(_schema(identity))
    assert dialog.get_by_role("button", name="Register").count() == 0
    dialog.get_by_role("button", name="Try compatibility").click()
    expect(dialog).to_contain_text("it can be registered")
    dialog.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", name="orders-value")).to_be_visible()

    # A field without a default cannot be read from what was written before.
    page.get_by_role("button", name="New version").click()
    dialog.get_by_label("Schema", exact=True).fill(
        _schema(identity, {"name": "sum", "type": "int"})
    )
    dialog.get_by_role("button", name="Try compatibility").click()
    expect(dialog).to_contain_text("Not compatible")
    assert dialog.get_by_role("button", name="Register").count() == 0
    dialog.get_by_label("Schema", exact=True).fill(
        _schema(identity, {"name": "sum", "type": "int", "default": 0})
    )
    dialog.get_by_role("button", name="Try compatibility").click()
    dialog.get_by_role("button", name="Register").click()
    expect(dialog).to_have_count(0)
    assert own_console.get("api/schemas/orders-value")["versions"] == [1, 2]

    page.get_by_label("Compare with").select_option("1")
    changes = page.get_by_role("region", name="Differences from version 1 to 2")
    expect(changes).to_contain_text('"default": 0')
    assert "against=1" in page.url
