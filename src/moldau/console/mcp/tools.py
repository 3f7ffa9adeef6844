"""Tools: the calls of the API that an assistant may make, with what each takes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request

from moldau.console.api.modules import MODULES
from moldau.console.call import Call
from moldau.console.console import Console
from moldau.console.endpoint import ENDPOINTS, Endpoint
from moldau.console.errors import ApiError, of_problem
from moldau.console.visitor import Visitor

assert MODULES

# By the names of endpoints: the order in which they are listed.
READING = (
    "get_overview", "get_cluster", "list_topics", "get_topic", "browse_messages", "list_groups",
    "get_group", "why_is_group_behind", "list_pipelines", "list_letter_topics", "list_letters",
    "list_transactions", "get_transaction", "list_subjects", "get_subject", "get_series",
    "who_may",
)  # fmt: skip
CHANGING = (
    "create_topic", "change_configs", "produce_message", "reset_group", "redrive_letters",
    "abort_transaction",
)  # fmt: skip
# What is clearer to whoever does not see the page.
_HINTS = {
    "get_overview": "Lists problems first: start here.",
    "why_is_group_behind": "For questions such as: why is this consumer group behind?",
    "browse_messages": "`from` is beginning, end:-N, offset:N or time:MS (milliseconds since "
    "1970); `filter` is an SQL expression such as value.amount > 100.",
    "list_letters": "Messages that a pipeline or a share group gave up on, with the reason.",
    "get_series": "Names such as cluster.in_msgs, topic:NAME.in_msgs, group:NAME.lag.",
    "reset_group": "With preview true, it only says what would change.",
    "redrive_letters": "With preview true, it only says what would be moved.",
}
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
# An assistant reads no more than this at once.
_LONGEST = 100_000


class NoSuchTool(LookupError):
    """A name that no tool has."""


class Tools:
    """The tools of one console. Calls are made in the thread that asks."""

    def __init__(self, console: Console, *, may_change: bool) -> None:
        self._console = console
        names = READING + (CHANGING if may_change else ())
        known = {each.name: each for each in ENDPOINTS}
        self._tools: dict[str, Endpoint] = {name: known[name] for name in names}

    def listed(self) -> list[dict[str, Any]]:
        """Return the tools as the protocol describes them."""
        return [
            {
                "name": name,
                "description": " ".join(filter(None, (each.summary, _HINTS.get(name)))),
                "inputSchema": input_schema(each),
                "annotations": {
                    "readOnlyHint": name not in CHANGING,
                    "destructiveHint": name in CHANGING,
                },
            }
            for name, each in self._tools.items()
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return what a tool says, and whether that is an error."""
        endpoint = self._tools.get(name)
        if endpoint is None:
            raise NoSuchTool(name)
        try:
            return self._called(endpoint, dict(arguments)), False
        except Exception as problem:
            known = of_problem(problem)
            if known is None:
                raise
            return f"{known.message}{f' ({known.hint})' if known.hint else ''}", True

    def _called(self, endpoint: Endpoint, given: dict[str, Any]) -> str:
        path = {}
        for name in _PARAMETER.findall(endpoint.path):
            if name not in given:
                raise ApiError(422, "invalid", f"{name} is missing")
            path[name] = str(given.pop(name))
        asked: list[Any] = []
        if endpoint.asked is not None:
            try:
                asked = [msgspec.convert(given, endpoint.asked, strict=False)]
            except msgspec.ValidationError as problem:
                raise ApiError(422, "invalid", str(problem)) from None
        elif given:
            raise ApiError(422, "invalid", f"{min(given)} is not an argument of this tool")
        settings = self._console.settings
        visitor = Visitor("mcp", settings.security, "stdio")
        request = Request({"type": "http", "method": endpoint.method, "headers": [], "path": ""})
        with Call(self._console, visitor, path, request) as call:
            answer = endpoint.answer(call, *asked)
        text = msgspec.json.format(msgspec.json.encode(answer), indent=1).decode()
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}\n... cut: {len(text)} characters; ask for less"
        return text


def input_schema(endpoint: Endpoint) -> dict[str, Any]:
    """Return what a tool takes: the names in its path, and what its struct has."""
    properties: dict[str, Any] = {
        name: {"type": "string"} for name in _PARAMETER.findall(endpoint.path)
    }
    needed = list(properties)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": needed}
    if endpoint.asked is not None:
        (_,), components = msgspec.json.schema_components(
            [endpoint.asked], ref_template="#/$defs/{name}"
        )
        own = components.pop(endpoint.asked.__name__)
        properties |= own["properties"]
        needed += own.get("required", [])
        if components:
            schema["$defs"] = components
    return schema
