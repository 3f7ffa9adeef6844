"""Credentials: what the broker checks a client's proof against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# Salts that are longer look as if they were that long.
LONGEST_SALT = 64


class ScramCredential(Protocol):
    """A user's credential for one SCRAM mechanism (RFC 5802): it checks a password, but holds
    none."""

    @property
    def salt(self) -> bytes: ...

    @property
    def stored_key(self) -> bytes: ...

    @property
    def server_key(self) -> bytes: ...

    @property
    def iterations(self) -> int: ...


class Credentials(Protocol):
    """The users that the cluster knows. Event loop only."""

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential for SCRAM-SHA-256 or SCRAM-SHA-512, None if there is none."""

    def shapes(self, mechanism: str) -> Sequence[tuple[int, int]]:
        """Return how credentials look from outside: each number of iterations and size of a salt
        that any user has, in the same order at every broker."""


class NoCredentials:
    """The users of a broker that has not read the cluster's metadata yet: none."""

    def scram(self, user: str, mechanism: str) -> None:
        return None

    def shapes(self, mechanism: str) -> Sequence[tuple[int, int]]:
        return ()
