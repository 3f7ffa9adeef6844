"""Sessions: who has signed in, known by a cookie that pages cannot read."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
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
    """Visitors by their tokens. Any thread.

    `on_end` is called with each visitor whose session is over: signed out, too old, or one too
    many.
    """

    def __init__(self, on_end: Callable[[Visitor], None]) -> None:
        self._on_end = on_end
        self._lock = threading.Lock()
        self._open: dict[str, _Session] = {}

    def begin(self, visitor: Visitor) -> str:
        """Return the token of a new session."""
        token = secrets.token_urlsafe(32)
        self.drop_old()
        now = time.monotonic()
        ended = []
        with self._lock:
            while len(self._open) >= _MOST:
                oldest = min(self._open, key=lambda each: self._open[each].seen)
                ended.append(self._open.pop(oldest).visitor)
            self._open[token] = _Session(visitor, now, now)
        for each in ended:
            self._on_end(each)
        return token

    def find(self, token: str | None) -> Visitor | None:
        self.drop_old()
        with self._lock:
            session = self._open.get(token or "")
            if session is None:
                return None
            session.seen = time.monotonic()
            return session.visitor

    def end(self, token: str | None) -> Visitor | None:
        """End a session; returns whose it was."""
        with self._lock:
            session = self._open.pop(token or "", None)
        if session is None:
            return None
        self._on_end(session.visitor)
        return session.visitor

    def drop_old(self) -> None:
        """End the sessions that have lasted, or rested, too long."""
        now = time.monotonic()
        ended = []
        with self._lock:
            for token, each in list(self._open.items()):
                if now - each.began > LONGEST_S or now - each.seen > IDLE_S:
                    ended.append(self._open.pop(token).visitor)
        for visitor in ended:
            self._on_end(visitor)
