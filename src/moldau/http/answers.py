"""Answers in JSON, errors among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response


def json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with this content."""
    body = msgspec.json.encode(content)
    return Response(body, status, headers, media_type="application/json")


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error, in the form that all routes use."""
    return json({"error_code": status, "message": message}, status, headers)
