"""Retries: how long to keep trying, and how long to wait in between."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.security.client import ClientSecurity


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The settings of a peer, with the names of Kafka's settings beside them."""

    client_id: str = "moldau"
    security: ClientSecurity | None = None  # security.protocol, ssl.*, sasl.*
    # The room for what comes from a broker on this machine; None for a whole fetch.
    local_receive_bytes: int | None = None
    connect_timeout_s: float = 10.0  # socket.connection.setup.timeout.ms
    request_timeout_s: float = 30.0  # request.timeout.ms
    retry_within_s: float = 60.0  # default.api.timeout.ms
    first_backoff_s: float = 0.05  # retry.backoff.ms
    longest_backoff_s: float = 1.0  # retry.backoff.max.ms
    # How long the first contact may take: an address with a typo should not cost a minute.
    reach_within_s: float = 8.0
    # A topic may be so new that not every broker has heard of it, but not for long.
    unknown_topic_within_s: float = 3.0
    # Gives a broker's token for the address of those for whom we ask, if that is not ours.
    origin: Callable[[], str] | None = None


@dataclass(slots=True)
class Attempts:
    """One endeavour: pauses that grow up to a limit, until `within_s` have passed."""

    within_s: float
    first_backoff_s: float
    longest_backoff_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    started: float = field(init=False)
    failures: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def left_s(self) -> float:
        return self.started + self.within_s - self.clock()

    def pause(self) -> bool:
        """Wait before the next attempt; False, at once, when the time is up."""
        backoff = self.first_backoff_s * 2.0 ** min(self.failures, 20)
        self.failures += 1
        # Many tasks lose the same broker at the same moment; they need not all return together.
        backoff = min(backoff, self.longest_backoff_s) * random.uniform(0.8, 1.2)
        if self.left_s <= 0:
            return False
        self.sleep(min(backoff, max(self.left_s, 0.0)))
        return True


def attempts(settings: PeerSettings, within_s: float | None = None) -> Attempts:
    return Attempts(
        settings.retry_within_s if within_s is None else within_s,
        settings.first_backoff_s,
        settings.longest_backoff_s,
    )
