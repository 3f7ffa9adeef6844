"""The process of a broker: its limits, its signals, and what it says when it serves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
import time

from msgspec.structs import replace

from moldau.broker import logs
from moldau.broker.net.listener import in_words
from moldau.broker.notify import notify
from moldau.broker.server import Broker, CompanionOf
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.upkeep.start_progress import StartProgress

logger = logging.getLogger("moldau.broker")

# Descriptors that are neither segment files nor connections.
_SPARE_FILES = 32
_SWITCH_S = 0.0005
_START_OBJECTS = 100_000


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def run(settings: BrokerSettings, companion: CompanionOf | None = None) -> None:
    """Run a broker in this process until SIGTERM or SIGINT."""
    import uvloop

    # What a start makes, such as thousands of logs, stays: it is seldom worth a collection.
    gc.set_threshold(_START_OBJECTS, 50, 100)
    logs.configure(settings.log_format, settings.log_level, broker=settings.node_id)
    # The loop gives the interpreter up at every call to the system, and waits this long to get it
    # back from a thread that is busy: with Python's 5 ms a request would take 10 ms and more.
    sys.setswitchinterval(_SWITCH_S)
    limit = raise_file_limit()
    # Sockets need descriptors too, two each, so segment files get at most half.
    files = min(settings.max_open_files, max(16, limit // 2))
    spare = _SPARE_FILES + (0 if companion is None else settings.http_max_connections)
    most_connections = max(1, (limit - files - spare) // 2)
    uvloop.run(_serve(replace(settings, max_open_files=files), most_connections, companion))


async def _serve(
    settings: BrokerSettings, most_connections: int, companion: CompanionOf | None
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    with StartProgress() as progress:
        broker = Broker(settings, most_connections, progress, companion)
        await broker.start()
    # Nothing that exists now will ever be garbage: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    # A collection of 50,000 objects that refer to each other, as HTTP requests leave, holds the
    # loop for up to 100 ms.
    gc.set_threshold(10_000, 50, 100)
    # The contract of the command line: one plain line when the broker serves.
    print(f"moldau broker {broker.id} ready on {in_words(broker.listeners)}", flush=True)  # noqa: T201
    notify("READY=1")
    await stopping.wait()
    notify("STOPPING=1")
    logger.info("stopping: finishing open requests")
    started = time.monotonic()
    await broker.stop()
    logger.info("stopped cleanly in %.2f s", time.monotonic() - started)
