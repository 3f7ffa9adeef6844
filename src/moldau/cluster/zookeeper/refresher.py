"""The refresher: rereads whatever may have changed in ZooKeeper, until it succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper.sessions.operations import Unanswered, Unreachable
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.znodes import DamagedNode

logger = logging.getLogger("moldau.cluster.zookeeper")

_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0


class Refresher:
    """Calls `refresh` with what was marked as stale. Event loop only.

    What is marked meanwhile, or could not be refreshed, is taken up in the next round.
    """

    def __init__(self, session: Session, refresh: Callable[[set[str]], Awaitable[None]]) -> None:
        self._session = session
        self._refresh = refresh
        self._stale: set[str] = set()
        self._wake = asyncio.Event()

    def mark(self, *what: str) -> None:
        """Have these looked at again, at once if ZooKeeper can be reached."""
        self._stale.update(what)
        self._wake.set()

    async def run(self) -> None:
        """Refresh what is marked, for ever."""
        pause = _RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._session.is_connected:
                continue
            stale, self._stale = self._stale, set()
            try:
                await self._refresh(stale)
            except (Unanswered, Unreachable) as error:
                logger.info("%s; will catch up when it is back", error)
                self.mark(*stale)
                await asyncio.sleep(_RETRY_S)
            except Exception as error:
                known = isinstance(error, StoreError | DamagedNode)
                logger.error("cannot keep up with ZooKeeper: %s", error, exc_info=not known)
                self.mark(*stale)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY_S)
            else:
                pause = _RETRY_S
