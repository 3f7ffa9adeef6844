"""Owners of shared partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from moldau.broker.settings.group_config import GroupConfig
from moldau.broker.sharing.delivery import Change
from moldau.broker.sharing.persister import Persister

# A SharedPartition, which is made of its owner.
Shared = Any


class Owner(Protocol):
    """Whoever keeps shared partitions, as one of them sees it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def persister(self) -> Persister: ...

    def now(self) -> int:
        """Tell the time, in milliseconds of a clock that only goes forward."""
        ...

    def now_ms(self) -> int:
        """Tell the time of day."""
        ...

    def config(self, group: str) -> GroupConfig:
        """Return the settings of a group."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with the broker."""

    def arm(self, shared: Shared, at: int) -> None:
        """Have `expire` called at a time."""

    def forget(self, shared: Shared) -> None:
        """Keep it no more."""

    async def bury(self, shared: Shared, change: Change) -> bool:
        """Write dead letters; return whether they are safe."""
        ...
