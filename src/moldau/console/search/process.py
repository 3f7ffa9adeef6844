"""Searches under way, as the event loop sees them: a worker each, what it found, who looks on."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from moldau.console.errors import ApiError
from moldau.console.search.request import (
    LARGEST_FRAME,
    LENGTH,
    Answer,
    Done,
    Failed,
    Found,
    FoundRecord,
    Progress,
    SearchRequest,
    decode_answer,
    encode,
)
from moldau.console.visitor import Visitor

_MODULE = "moldau.console.search"
_NEEDED = ("duckdb", "pyarrow", "numba")
# Each worker takes a core.
_MOST_RUNNING = 4
_MOST_KEPT = 16
_KEPT_S = 600.0
_SPARE_S = 120.0
# How much longer than it was told a worker may take.
_GRACE_S = 30.0


def require_extra() -> None:
    """ApiError unless what a search needs is installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ApiError(
            422, "extra_missing", f"searches and filters need {', '.join(missing)}",
            "install moldau[console]",
        )  # fmt: skip


class Spare:
    """A process that has imported what it needs, for whoever searches next. Event loop only.

    It is started when somebody is about to search, and after a search, since people seldom search
    once. It ends if nobody does.
    """

    def __init__(self) -> None:
        self._ready: asyncio.subprocess.Process | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The process that is ready; None if there is none."""
        return self._ready

    async def take(self) -> asyncio.subprocess.Process:
        process, self._ready = self._ready, None
        if process is None or process.returncode is not None:
            process = await _start()
        return process

    async def renew(self) -> None:
        """Have one ready, and forget it after a while."""
        if self._is_closed:
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(_SPARE_S, self._end)
        if not self._is_wanted():
            return
        process = await _start()
        if self._is_wanted():
            self._ready = process
        else:
            # Closed meanwhile, or somebody else was faster.
            await _stop(process)

    def _is_wanted(self) -> bool:
        has_one = self._ready is not None and self._ready.returncode is None
        return not self._is_closed and not has_one

    async def close(self) -> None:
        self._is_closed = True
        process = self._ready
        self._end()
        if process is not None:
            await _stop(process)

    def _end(self) -> None:
        process, self._ready = self._ready, None
        if self._expiry is not None:
            self._expiry.cancel()
        if process is not None and process.returncode is None:
            process.kill()


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # It gives way to others with all of its session.
        start_new_session=True,
    )  # fmt: skip


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a process, and close its pipes."""
    if process.returncode is None:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.communicate()


class Worker:
    """The process of one search. Event loop only."""

    def __init__(self, request: SearchRequest, spare: Spare) -> None:
        self._request = request
        self._spare = spare
        self._process: asyncio.subprocess.Process | None = None

    async def answers(self) -> AsyncGenerator[Answer, None]:
        """Start the process, and yield what it answers up to its last word."""
        process = self._process = await self._spare.take()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            body = encode(self._request)
            process.stdin.write(LENGTH.pack(len(body)) + body)
            process.stdin.close()
            within_s = None if self._request.follows else self._request.within_s + _GRACE_S
            async with asyncio.timeout(within_s):
                while True:
                    answer = await self._next(process.stdout)
                    yield answer
                    if isinstance(answer, Done | Failed):
                        return
        except TimeoutError:
            yield Failed("the search took too long")
        except (asyncio.IncompleteReadError, OSError):
            yield Failed("the search process died")
        finally:
            await self.stop()

    async def _next(self, source: asyncio.StreamReader) -> Answer:
        (size,) = LENGTH.unpack(await source.readexactly(LENGTH.size))
        if size > LARGEST_FRAME:
            return Failed("the worker's answer is too large")
        answer: Answer = decode_answer(await source.readexactly(size))
        return answer

    async def stop(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            await _stop(process)
            await self._spare.renew()


@dataclass(slots=True)
class Search:
    """A search, whose it is, and what is known of it so far."""

    id: str
    visitor: Visitor
    request: SearchRequest
    records: list[FoundRecord] = field(default_factory=list)
    progress: Progress | None = None
    end: Done | Failed | None = None
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: float | None = None

    def tell(self) -> None:
        """Wake those who look on."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Searches:
    """The searches of a console. Event loop only; reading what was found is for any thread."""

    def __init__(self) -> None:
        self.spare = Spare()
        self._searches: dict[str, Search] = {}

    def begin(self, visitor: Visitor, request: SearchRequest) -> Search:
        """Start a worker; ApiError if too many run."""
        self._drop_old()
        running = sum(each.end is None for each in self._searches.values())
        if running >= _MOST_RUNNING:
            raise ApiError(
                503, "busy", f"{running} searches are under way", "wait for one, or cancel it"
            )
        search = Search(secrets.token_urlsafe(12), visitor, request)
        search.task = asyncio.create_task(self._run(search))
        self._searches[search.id] = search
        return search

    def find(self, visitor: Visitor, id: str) -> Search:
        """Return a visitor's own search; ApiError if there is none."""
        found = self._searches.get(id)
        if found is None or (found.visitor.user, found.visitor.security) != (
            visitor.user,
            visitor.security,
        ):
            raise ApiError(
                404, "not_found", "there is no such search", "searches are removed after a while"
            )
        return found

    async def cancel(self, search: Search) -> None:
        """End a search; what it found stays for a while."""
        if search.task is not None and search.end is None:
            search.task.cancel()
            await asyncio.gather(search.task, return_exceptions=True)

    async def close(self) -> None:
        # First, so that a search that ends now starts no other.
        await self.spare.close()
        for search in list(self._searches.values()):
            await self.cancel(search)
        tasks = [each.task for each in self._searches.values() if each.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, search: Search) -> None:
        try:
            async with aclosing(Worker(search.request, self.spare).answers()) as answers:
                async for answer in answers:
                    if isinstance(answer, Found):
                        search.records.extend(answer.records)
                    elif isinstance(answer, Progress):
                        search.progress = answer
                    else:
                        search.end = answer
                    search.tell()
        finally:
            if search.end is None:
                search.end = Done("cancelled", {})
            search.ended_at = time.monotonic()
            search.tell()

    def _drop_old(self) -> None:
        oldest = time.monotonic() - _KEPT_S
        ended = [each for each in self._searches.values() if each.ended_at is not None]
        ended.sort(key=lambda each: each.ended_at or 0.0)
        too_many = max(0, len(self._searches) - _MOST_KEPT + 1)
        for number, each in enumerate(ended):
            if number < too_many or (each.ended_at or 0.0) < oldest:
                del self._searches[each.id]
