"""Fetch sessions (KIP-227): the numbers of their requests, and why a request does not fit one.

request                      meaning
id 0,  epoch -1              no session
id 0,  epoch 0               begin a session with these partitions
id n,  epoch e > 0           the session's next request: partitions changed, added, forgotten
id n,  epoch 0 or -1         end session n, and begin a new one (0) or none (-1)
"""

from __future__ import annotations

from moldau.wire.errors import Error

NO_EPOCH = -1
FIRST_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class SessionError(Exception):
    """A request that does not fit its session; the client begins another."""

    def __init__(self, code: Error) -> None:
        super().__init__(code.name)
        self.code = code


def next_epoch(epoch: int) -> int:
    """Return the epoch of a session's request after the one with this epoch."""
    return epoch + 1 if epoch < _LAST_EPOCH else 1
