"""Scrapes: `/metrics`, put together in slices, so that a large broker serves on meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moldau.broker.metrics import Metrics
from moldau.broker.security.authorizer import Operation
from moldau.broker.slices import Slices
from moldau.http.host import Host
from moldau.http.metrics.broker import add_broker
from moldau.http.metrics.families import OPEN_METRICS, TEXT, Families
from moldau.http.metrics.groups import Groups
from moldau.http.metrics.partitions import add_partitions
from moldau.http.metrics.process import Process
from moldau.http.metrics.requests import Requests
from moldau.http.metrics.shares import Shares
from moldau.http.metrics.topics import Topics

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# Pieces of text that are joined before the loop serves others again.
_AT_A_TIME = 20_000
# What is larger is compressed, for who takes it: by a thread.
_WORTH_COMPRESSING = 16 << 10


class Scraper:
    """What a broker shows of itself. Event loop only.

    Whoever asks while a scrape is under way gets that one, so that many who ask cost no more than
    one. It takes little time in all, and none of its slices holds the loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._metrics = Metrics(broker.state)
        broker.connections.exit.count_by(self._metrics)
        self._requests = Requests(self._metrics, broker.connections.exit)
        self._topics = Topics(self._metrics, broker.state)
        broker.replicas.watchers.append(self._topics)
        self._groups = Groups(broker)
        self._shares = Shares(broker)
        self.process = Process(broker.id)
        # By whether they have series of single partitions.
        self._running: dict[bool, asyncio.Task[Families]] = {}
        self._count = 0
        self._loop_s = 0.0

    async def scrape(self, *, one_by_one: bool) -> Families:
        """Return all families as they are now."""
        running = self._running.get(one_by_one)
        if running is None:
            running = asyncio.get_running_loop().create_task(self._scrape(one_by_one))
            self._running[one_by_one] = running
            running.add_done_callback(partial(self._ended, one_by_one))
        # A client that goes away does not end it for the others.
        return await asyncio.shield(running)

    def _ended(self, one_by_one: bool, task: asyncio.Task[Families]) -> None:
        del self._running[one_by_one]
        if not task.cancelled():
            task.exception()

    async def stop(self) -> None:
        """End what is under way: the partitions are about to go."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _scrape(self, one_by_one: bool) -> Families:
        families, slices = Families(), TimedSlices()
        self.process.add_to(families)
        add_broker(self._broker, families)
        self._requests.add_to(families, time.monotonic())
        await slices.rest()
        await add_partitions(self._broker, self._topics, families, slices, one_by_one=one_by_one)
        await self._topics.add_to(families, slices)
        await self._groups.add_to(families, slices, one_by_one=one_by_one)
        await self._shares.add_to(families, slices, one_by_one=one_by_one)
        self._count += 1
        self._loop_s += slices.total_s
        families.counter("moldau_scrapes_total", "Scrapes before this one.", self._count - 1)
        families.counter(
            "moldau_scrape_seconds_total", "Time of the event loop that scrapes took.", self._loop_s
        )
        return families


class TimedSlices(Slices):
    """Slices that know how long they took together."""

    __slots__ = ("total_s",)

    def __init__(self) -> None:
        super().__init__()
        self.total_s = 0.0

    async def rest(self) -> None:
        self.total_s += self.took_s
        await super().rest()


async def joined(pieces: list[str]) -> bytes:
    """Return the text as bytes, put together in slices."""
    slices = Slices()
    parts = []
    for start in range(0, len(pieces), _AT_A_TIME):
        parts.append("".join(pieces[start : start + _AT_A_TIME]).encode())
        await slices.rest()
    return b"".join(parts)


def routes(host: Host) -> list[Route]:
    """Return the route of the metrics, which are counted from now on."""
    scraper = Scraper(host.broker)

    async def start() -> None:
        scraper.process.start()

    async def stop() -> None:
        scraper.process.stop()
        await scraper.stop()

    host.on_start.append(start)
    host.on_stop.append(stop)

    async def metrics(request: Request) -> Response:
        host.require(request, Operation.DESCRIBE)
        if host.broker.phase == "stopping":
            raise HTTPException(503, "the broker is stopping")
        is_open = "application/openmetrics-text" in request.headers.get("accept", "")
        one_by_one = (
            host.broker.settings.metrics_per_partition
            and request.query_params.get("per_partition") != "false"
        )
        families = await scraper.scrape(one_by_one=one_by_one)
        body = await joined(families.render(is_open=is_open))
        headers = {"vary": "Accept, Accept-Encoding"}
        takes_gzip = "gzip" in request.headers.get("accept-encoding", "")
        if takes_gzip and len(body) > _WORTH_COMPRESSING:
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers["content-encoding"] = "gzip"
        return Response(body, headers=headers, media_type=OPEN_METRICS if is_open else TEXT)

    return [Route("/metrics", metrics)]
