"""The audit trail of a console: every change that was made with it, and who made it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from moldau.console.visitor import Visitor

logger = logging.getLogger("moldau.console.audit")

_KEPT = 1000


class AuditRecord(msgspec.Struct):
    """One change: when, who, from where, what."""

    at_ms: int
    user: str
    address: str
    action: str
    details: dict[str, Any]
    source: str = "console"


class Audit:
    """Logs changes and keeps the last ones. Any thread.

    `publish` takes each record somewhere else too; what goes wrong there is its own to log.
    """

    def __init__(self, publish: Callable[[AuditRecord], None] | None = None) -> None:
        self.publish = publish
        self._lock = threading.Lock()
        self._last: deque[AuditRecord] = deque(maxlen=_KEPT)

    def note(self, visitor: Visitor, action: str, details: dict[str, Any]) -> None:
        record = AuditRecord(
            int(time.time() * 1000), visitor.name, visitor.address, action, details
        )
        text = msgspec.json.encode(details).decode()
        logger.info("%s from %s: %s %s", record.user, record.address, action, text)
        with self._lock:
            self._last.append(record)
        if self.publish is not None:
            self.publish(record)

    def last(self, limit: int) -> list[AuditRecord]:
        """Return the last changes, the newest first."""
        with self._lock:
            return list(self._last)[::-1][:limit]
