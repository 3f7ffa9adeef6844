"""Contexts, and what the server is."""

from __future__ import annotations

from typing import Any

from moldau import __version__
from moldau.http.registry.call import Call, Operation


async def every_context(call: Call) -> Any:
    return call.page(call.state.contexts())


async def cluster_id(call: Call) -> Any:
    return {"id": call.registry.cluster_id, "scope": {"path": [], "clusters": {}}}


async def version(call: Call) -> Any:
    return {"version": __version__, "commitId": ""}


OPERATIONS = (
    Operation("GET", "/contexts", every_context),
    Operation("GET", "/v1/metadata/id", cluster_id),
    Operation("GET", "/v1/metadata/version", version),
)
