"""Asking workers: what they need for a search as somebody, and what comes of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from moldau.console.errors import ApiError
from moldau.console.search.process import Spare, Worker
from moldau.console.search.request import (
    Failed,
    Found,
    FoundRecord,
    Progress,
    Range,
    SearchRequest,
)
from moldau.console.settings import ConsoleSettings
from moldau.console.values.shown import Message, Shower
from moldau.console.visitor import Visitor
from moldau.records.record import Record


def new_request(
    settings: ConsoleSettings,
    visitor: Visitor,
    topic: str,
    ranges: list[Range],
    filter: str,
    limit: int,
    within_s: float,
    *,
    follows: bool = False,
) -> SearchRequest:
    """Return what a worker needs, to look at these ranges as the visitor."""
    security = visitor.security
    return SearchRequest(
        settings.bootstrap,
        {} if security is None else security.properties(),
        topic,
        ranges,
        filter,
        limit,
        within_s,
        settings.registry,
        settings.registry_user(security),
        [f"{each.topics}:{each.field}" for each in settings.masks],
        follows,
        registry_own=settings.registry_own,
        origin="" if settings.vouch is None else settings.vouch(visitor.address),
    )


def messages(show: Shower, records: Sequence[FoundRecord]) -> list[Message]:
    """Return found records as the page shows them."""
    return [
        show.message(
            each.partition,
            Record(each.offset, each.timestamp, each.key, each.value, each.headers),
            each.uses_append_time,
        )
        for each in records
    ]


@dataclass(slots=True)
class Collected:
    """All that a worker answered."""

    records: list[FoundRecord] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    scanned: int = 0


async def collect(request: SearchRequest, spare: Spare) -> Collected:
    """Run a search to its end; ApiError if it fails."""
    found = Collected()
    async with aclosing(Worker(request, spare).answers()) as answers:
        async for answer in answers:
            if isinstance(answer, Found):
                found.records += answer.records
            elif isinstance(answer, Progress):
                found.scanned = answer.scanned
            elif isinstance(answer, Failed):
                raise failure(answer)
            else:
                found.positions = answer.positions
    return found


def failure(answer: Failed) -> ApiError:
    if answer.is_bad_filter:
        return ApiError(422, "bad_filter", answer.message)
    return ApiError(502, "search_failed", answer.message)
