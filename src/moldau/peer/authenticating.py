"""Authentication on a connection to a broker, without I/O: what to ask, and what the answers mean.

A generator of questions, to which each answer is sent: the same for connections that block and for
those on a loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from moldau.peer.errors import NotAuthenticated
from moldau.security.sasl_client import ServerNotTrusted
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import Values

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity

# The share of a session's life after which to authenticate again.
_RENEW_AT = 0.85


def authentication(
    address: str, security: ClientSecurity
) -> Generator[tuple[Api, Values], Any, float]:
    """Ask what it takes; return after how many seconds to do it again, 0 for never.

    NotAuthenticated when the broker does not take our word, or we not its.
    """
    answer = yield Api.SASL_HANDSHAKE, {"mechanism": security.mechanism}
    if answer.error_code == Error.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(map(str, answer.mechanisms))
        raise NotAuthenticated(address, f"it does not support {security.mechanism}, only {enabled}")
    if answer.error_code:
        raise NotAuthenticated(address, "its listener has no SASL")
    try:
        exchange = security.exchange()
        message: bytes | None = exchange.first()
        lifetime_s = 0.0
        while message is not None:
            answer = yield Api.SASL_AUTHENTICATE, {"auth_bytes": message}
            if answer.error_code:
                raise NotAuthenticated(
                    address, str(answer.error_message or Error(answer.error_code).name)
                )
            lifetime = getattr(answer, "session_lifetime", None)
            lifetime_s = 0.0 if lifetime is None else lifetime.total_seconds()
            message = exchange.respond(bytes(answer.auth_bytes))
    except ServerNotTrusted as problem:
        raise NotAuthenticated(address, str(problem)) from None
    except OSError as problem:
        raise NotAuthenticated(address, f"could not get a token: {problem}") from None
    return lifetime_s * _RENEW_AT
