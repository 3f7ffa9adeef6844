"""The audit trail of a console: every change that was made with it, and who made it.

Sign-ins that were refused are kept apart, and those of one name from one address are counted: who
guesses passwords writes neither a line for each nor the changes of others out of the trail.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from moldau.broker.security.principal import shortened
from moldau.console.visitor import Visitor

logger = logging.getLogger("moldau.console.audit")

_KEPT = 1000
_REFUSALS_KEPT = 200
# How long refusals of one name from one address are counted before they are told together, and how
# many of those are counted apart.
WINDOW_S = 60.0
_MOST_KINDS = 100
_OTHERS = ("others", "other addresses")
_REFUSED = "sign in refused"
_LONGEST_NAME = 256


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
        self._refused: deque[AuditRecord] = deque(maxlen=_REFUSALS_KEPT)
        # By name and address, since the window began.
        self._counted: dict[tuple[str, str], AuditRecord] = {}
        self._timer: threading.Timer | None = None

    def note(self, visitor: Visitor, action: str, details: dict[str, Any]) -> None:
        record = _record(visitor.name, visitor.address, action, details)
        with self._lock:
            self._last.append(record)
        self._tell(record)

    def refuse(self, visitor: Visitor) -> None:
        """Note a sign-in that failed. The first of its kind is told at once, the others later."""
        kind = visitor.name, visitor.address
        with self._lock:
            if kind not in self._counted and len(self._counted) >= _MOST_KINDS:
                kind = _OTHERS
            known = self._counted.get(kind)
            if known is not None:
                known.details["times"] += 1
                return
            record = self._counted[kind] = _record(*kind, _REFUSED, {"times": 1})
            self._refused.append(record)
            if self._timer is None:
                self._timer = threading.Timer(WINDOW_S, self.tell_refusals)
                self._timer.daemon = True
                self._timer.start()
        self._tell(record)

    def tell_refusals(self) -> None:
        """Tell of the kinds that came more than once, and count anew."""
        with self._lock:
            counted, self._counted = self._counted, {}
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for record in counted.values():
            if record.details["times"] > 1:
                self._tell(record)

    def close(self) -> None:
        """Log what is still to be told; the cluster is not asked any more."""
        self.publish = None
        self.tell_refusals()

    def last(self, limit: int) -> list[AuditRecord]:
        """Return the last changes and refusals, the newest first."""
        with self._lock:
            found = [*self._last, *self._refused]
        return sorted(found, key=lambda each: each.at_ms)[::-1][:limit]

    def _tell(self, record: AuditRecord) -> None:
        text = msgspec.json.encode(record.details).decode()
        user = shortened(record.user, _LONGEST_NAME)
        logger.info("%s from %s: %s %s", user, record.address, record.action, text)
        publish = self.publish
        if publish is not None:
            publish(record)


def _record(user: str, address: str, action: str, details: dict[str, Any]) -> AuditRecord:
    return AuditRecord(int(time.time() * 1000), user, address, action, details)
