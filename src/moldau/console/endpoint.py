"""Endpoints: what the API offers, each declared where it is answered.

A function that answers takes the call and, if it asks for anything, a struct: for GET and DELETE
out of the query, otherwise out of the body. What it returns is a struct too. The routes, the
checks of what is asked and the OpenAPI document all follow from that.
"""

from __future__ import annotations

import typing
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

F = TypeVar("F", bound=Callable[..., Any])

# Filled when the modules of the API are imported.
ENDPOINTS: list[Endpoint] = []


class Done(msgspec.Struct):
    """What was asked for was done."""

    done: bool = True


class Event(msgspec.Struct):
    """One event of a stream."""

    event: str
    data: Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    `is_open` ones answer before anybody has signed in. `changes` something unless told otherwise
    by a field `preview`.
    """

    method: str
    path: str
    answer: Callable[..., Any]
    summary: str
    tag: str
    asked: type | None
    returns: Any
    status: int
    changes: bool
    is_open: bool
    is_stream: bool
    media_type: str

    @property
    def asks_in_query(self) -> bool:
        return self.method in ("GET", "DELETE")

    @property
    def name(self) -> str:
        return self.answer.__name__


def endpoint(
    method: str,
    path: str,
    *,
    status: int = 200,
    changes: bool | None = None,
    is_open: bool = False,
    is_stream: bool = False,
    media_type: str = "application/json",
) -> Callable[[F], F]:
    """Declare who answers a method of a path; the first line of its docstring is the summary."""

    def declare(answer: F) -> F:
        hints = typing.get_type_hints(answer)
        summary = (answer.__doc__ or "").strip().partition("\n")[0]
        ENDPOINTS.append(
            Endpoint(
                method,
                path,
                answer,
                summary,
                answer.__module__.rpartition(".")[2].replace("_", " "),
                hints.get("asked"),
                hints.get("return"),
                status,
                method != "GET" if changes is None else changes,
                is_open,
                is_stream,
                "text/event-stream" if is_stream else media_type,
            )
        )
        return answer

    return declare


Stream = AsyncGenerator[Event, None]
