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

# The kind of principals that only brokers give themselves, in envelopes; no client can be one.
BROKER = "Broker"


def shortened(name: str, longest: int = 100) -> str:
    """Return a name that somebody else has chosen as a log has it: not so long that it fills it,
    and without a line of its own."""
    name = name if len(name) <= longest else f"{name[:longest]}…"
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def broker_principal(broker: int) -> Principal:
    """Return who asks when a broker asks the controller for something by itself."""
    return Principal(BROKER, str(broker))
