"""Sessions: who has signed in, known by a cookie that pages cannot read."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass

from moldau.console.visitor import Visitor

COOKIE = "moldau_console"
# However busy, one signs in again after a working day; at rest, after an hour or two.
LONGEST_S = 12 * 3600.0
IDLE_S = 2 * 3600.0
_MOST = 1000


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    began: float
    seen: float


class Sessions:
    """Visitors by their tokens. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, _Session] = {}

    def begin(self, visitor: Visitor) -> str:
        """Return the token of a new session."""
        token = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            self._drop_old(now)
            while len(self._open) >= _MOST:
                del self._open[min(self._open, key=lambda each: self._open[each].seen)]
            self._open[token] = _Session(visitor, now, now)
        return token

    def find(self, token: str | None) -> Visitor | None:
        now = time.monotonic()
        with self._lock:
            self._drop_old(now)
            session = self._open.get(token or "")
            if session is None:
                return None
            session.seen = now
            return session.visitor

    def end(self, token: str | None) -> Visitor | None:
        """End a session; returns whose it was."""
        with self._lock:
            session = self._open.pop(token or "", None)
        return None if session is None else session.visitor

    def _drop_old(self, now: float) -> None:
        for token, each in list(self._open.items()):
            if now - each.began > LONGEST_S or now - each.seen > IDLE_S:
                del self._open[token]
