"""Origins: the address of somebody for whom a broker asks, such as the browser of its console.

    TOKEN = hex of the address "." second until which it counts "." hex of an HMAC-SHA-256

The key is the secret that the brokers of a cluster share, or one of this process where the cluster
has none yet; then only this broker believes what it says itself. Clients learn neither, and whoever
sees a token has no right by it: it only says whence those come who prove who they are.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable

# As long as a search may go on.
_COUNTS_S = 3600
_LONGEST_ADDRESS = 64
_PURPOSE = b"moldau origin "


class Origins:
    """Makes and reads tokens; `secret` is the cluster's, empty if it has none. Any thread."""

    def __init__(self, secret: Callable[[], bytes], clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock
        self._own = os.urandom(32)

    def vouch(self, address: str) -> str:
        """Return a token for an address."""
        claim = f"{address.encode().hex()}.{int(self._clock()) + _COUNTS_S}"
        return f"{claim}.{_signed(self._secret() or self._own, claim)}"

    def address_in(self, token: str) -> str | None:
        """Return the address that a broker has vouched for; None if none has, or long ago."""
        claim, _, signature = token.rpartition(".")
        keys = [key for key in (self._own, self._secret()) if key]
        # The text may be any: only ASCII can be compared.
        if not token.isascii() or not any(
            hmac.compare_digest(_signed(key, claim), signature) for key in keys
        ):
            return None
        address, _, until = claim.partition(".")
        if int(until) < self._clock() or len(address) > 2 * _LONGEST_ADDRESS:
            return None
        return bytes.fromhex(address).decode()


def _signed(key: bytes, claim: str) -> str:
    return hmac.digest(key, _PURPOSE + claim.encode(), "sha256").hex()
