"""The broker, as coordinators see it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.state import ClusterState


class Host(Protocol):
    """The broker as a coordinator uses it; values are read again at each use."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def state(self) -> ClusterState: ...

    def now_ms(self) -> int:
        """Tell the time of day."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with the broker."""

    async def ensure_topic(self, topic: NewTopic) -> ClusterError | None:
        """Create a topic unless it exists, and return when this broker holds its part of it."""
