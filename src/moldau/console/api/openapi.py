"""The OpenAPI document: made from the endpoints themselves."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from moldau import __version__
from moldau.console.call import Call
from moldau.console.endpoint import ENDPOINTS, Endpoint, endpoint

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF = "#/components/schemas/{name}"


class ErrorDetail(msgspec.Struct):
    """A code for programs, a message and a hint for people."""

    code: str
    message: str
    hint: str


class ErrorAnswer(msgspec.Struct):
    """Why a call was refused."""

    error: ErrorDetail


@endpoint("GET", "api/openapi.json", is_open=True)
def get_openapi(call: Call) -> dict[str, Any]:
    """Describe this API."""
    return document()


@cache
def document() -> dict[str, Any]:
    """Return the document of all endpoints."""
    ordered = sorted(ENDPOINTS, key=lambda each: (each.path, each.method))
    types = [each.returns for each in ordered if _is_json(each)]
    types += [each.asked for each in ordered if each.asked is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=_REF)
    found = dict(zip(map(id, [*types, ErrorAnswer]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in ordered:
        path = "/" + _PARAMETER.sub(r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, found, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Moldau console",
            "version": __version__,
            "description": "The API behind the console's page. Changes need the header "
            "X-Moldau-Console: 1.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "moldau_console"}
            },
        },
    }


def _is_json(each: Endpoint) -> bool:
    return not each.is_stream and each.media_type == "application/json"


def _operation(
    each: Endpoint, found: dict[int, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(each.path)
    ]
    operation: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.tag],
    }
    if each.method != "GET":
        csrf = {"type": "string", "enum": ["1"]}
        parameters.append(
            {"name": "X-Moldau-Console", "in": "header", "required": True, "schema": csrf}
        )
    if each.asked is not None and each.asks_in_query:
        parameters += _query(each.asked, components)
    elif each.asked is not None:
        content = {"application/json": {"schema": found[id(each.asked)]}}
        operation["requestBody"] = {"required": True, "content": content}
    if parameters:
        operation["parameters"] = parameters
    schema = found[id(each.returns)] if _is_json(each) else {"type": "string"}
    error = {"application/json": {"schema": found[id(ErrorAnswer)]}}
    operation["responses"] = {
        str(each.status): {
            "description": "The answer.",
            "content": {each.media_type: {"schema": schema}},
        },
        "default": {"description": "Why the request was refused.", "content": error},
    }
    if not each.is_open:
        operation["security"] = [{"session": []}, {}]
    return operation


def _query(asked: type, components: dict[str, Any]) -> list[dict[str, Any]]:
    described = components[asked.__name__]
    needed = described.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": schema}
        for name, schema in described["properties"].items()
    ]
