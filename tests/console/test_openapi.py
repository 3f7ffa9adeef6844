"""The OpenAPI document is whole, and the documentation has every call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from moldau.console.api.modules import MODULES
from moldau.console.api.openapi import document
from moldau.console.endpoint import ENDPOINTS

assert MODULES
DOCS = Path(__file__).parents[2] / "docs" / "api.md"


def refs(content: Any) -> list[str]:
    """Return all references in a document."""
    if isinstance(content, dict):
        own = [content["$ref"]] if isinstance(content.get("$ref"), str) else []
        return own + [each for value in content.values() for each in refs(value)]
    if isinstance(content, list):
        return [each for value in content for each in refs(value)]
    return []


def test_every_endpoint_is_described_with_its_own_name_and_a_summary() -> None:
    operations = [
        operation for methods in document()["paths"].values() for operation in methods.values()
    ]
    assert len(operations) == len(ENDPOINTS)
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(each["summary"].endswith(".") for each in operations)


def test_every_reference_leads_somewhere() -> None:
    known = document()["components"]["schemas"]
    assert {ref.rpartition("/")[2] for ref in refs(document())} <= known.keys()


def test_every_change_asks_for_the_header_that_other_sites_cannot_send() -> None:
    for methods in document()["paths"].values():
        for method, operation in methods.items():
            names = [each["name"] for each in operation.get("parameters", ())]
            assert ("X-Moldau-Console" in names) == (method != "get")


def test_the_documentation_has_every_call() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for each in ENDPOINTS:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", each.path)
        assert f"`{each.method} {path}`" in text
