"""Principals: who is at the other end of a connection, as far as that is proved."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A kind and a name, written as Kafka does: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


# A client that has not authenticated, by Kafka's name.
ANONYMOUS = Principal("User", "ANONYMOUS")
