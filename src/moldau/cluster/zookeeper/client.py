"""kazoo's client with the changes that we need: its waits, and the timeout that it was granted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

_TRIES_PER_SESSION = 4
# kazoo waits for a minute between attempts if it is let.
_RETRY = {"max_tries": -1, "delay": 0.02, "backoff": 1.6, "max_delay": 0.5, "max_jitter": 0.4}


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, which wait for a silent server for as long as that is worth.

    While a session lives (`has_session`) another server may still save it, so one that does not
    answer is given up after a part of it. Without one nothing is lost by waiting, and servers that
    are busy need their time to agree on one: they have `patience_s`.
    """

    def __init__(self, connect_within_s: float) -> None:
        super().__init__()
        self._connect_within_s = connect_within_s
        self.patience_s = connect_within_s
        self.has_session = False

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        limit = self._connect_within_s if self.has_session else self.patience_s
        options["timeout"] = min(options.get("timeout") or limit, limit)
        return super().create_connection(*arguments, **options)

    def select(self, readable: Any, writable: Any, failed: Any, timeout: float) -> Any:
        # Before there is a session kazoo waits for nothing else than to be given one.
        if not self.has_session:
            timeout = max(timeout, self.patience_s)
        return super().select(readable, writable, failed, timeout)


def new_client(
    hosts: str, timeout_s: float, on_granted: Callable[[float], None]
) -> tuple[KazooClient, Handler]:
    """Return a client that asks for sessions of this length, not started.

    `on_granted` is told, on kazoo's thread and with each connection, how long the session lives
    without a sign of life: the ensemble has bounds of its own.
    """
    # kazoo waits for a server that accepts and then is silent for a session's length divided by
    # the number of hosts: a single one would be the end of the session.
    servers = hosts.split(",")
    servers *= -(-_TRIES_PER_SESSION // len(servers))
    handler = Handler(timeout_s / len(servers))
    client = KazooClient(
        ",".join(servers),
        timeout=timeout_s,
        handler=handler,
        connection_retry=KazooRetry(sleep_func=handler.sleep_func, **_RETRY),
        logger=_kazoo_logger(),
    )
    connect = client._connection._connect

    def connect_and_tell(*where: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = connect(*where)
        # kazoo keeps to itself what it was granted, but lets a read take two thirds of that.
        on_granted(round(read_timeout_ms * 1.5) / 1000)
        return read_timeout_ms, connect_timeout_ms

    client._connection._connect = connect_and_tell
    return client, handler


def _kazoo_logger() -> logging.Logger:
    """kazoo repeats each failed attempt; what it means is said here once instead."""
    quiet = logging.getLogger("moldau.cluster.zookeeper.kazoo")
    quiet.setLevel(logging.ERROR)
    return quiet
