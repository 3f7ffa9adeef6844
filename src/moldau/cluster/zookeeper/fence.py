"""The fence: whether this broker may lead."""

from __future__ import annotations

import logging

from moldau.cluster.store import FenceListener

logger = logging.getLogger("moldau.cluster.zookeeper")


class Fence:
    """Closed while the broker may lead nothing; tells its listeners of each change. Event loop."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.is_closed = False
        self.listeners: list[FenceListener] = []

    def close(self, reason: str) -> None:
        if not self.is_closed:
            self.is_closed = True
            logger.warning("broker %d no longer leads: %s", self._broker_id, reason)
            self._tell()

    def open(self) -> None:
        if self.is_closed:
            self.is_closed = False
            logger.info("broker %d takes part in the cluster again", self._broker_id)
            self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            try:
                listener(self.is_closed)
            except Exception:
                logger.exception(
                    "a listener failed when a fence %s", "closed" if self.is_closed else "opened"
                )
