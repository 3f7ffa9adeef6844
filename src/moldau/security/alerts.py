"""Alerts: what TLS tells a client whose handshake the server ends.

An event loop closes a connection whose handshake failed and drops what OpenSSL has to say about it.
In TLS 1.3 a client is done with its handshake before the server has looked at its certificate. So
without the alert it would take its refusal for a lost connection, and come again and again.
"""

from __future__ import annotations

import ssl
from typing import Any


class _AlertingObject(ssl.SSLObject):
    """The server's end of a connection, which keeps what is to be sent when a handshake fails."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as problem:
            problem.alert = self.outgoing.read()  # type: ignore[attr-defined]
            raise


class AlertingContext(ssl.SSLContext):
    """A context whose failed handshakes leave their alert in the error, for `alert_of`."""

    sslobject_class = _AlertingObject

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *more, **named)
        assert isinstance(made, _AlertingObject)
        made.outgoing = outgoing
        return made


def alert_of(problem: BaseException) -> bytes:
    """Return what is still to be sent after a handshake that failed; nothing if nothing is."""
    return getattr(problem, "alert", b"")
