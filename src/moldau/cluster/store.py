"""Where the cluster's state is kept, whatever keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from moldau.cluster.changes import AnyChange
from moldau.cluster.state import ClusterState

Listener = Callable[[Sequence[AnyChange]], None]


class StoreError(Exception):
    """The store could not be read, or a change could not be made durable."""


class MetadataStore(Protocol):
    """Durable, ordered changes and the state they add up to. Event loop only.

    `state` shows only what is durable. A decision made on it holds only if nothing that it depends
    on is being committed at the same time; the controller sees to that.
    """

    @property
    def state(self) -> ClusterState:
        """The one state object, the same from `open` to `close`."""

    async def open(self) -> None:
        """Load the state; StoreError if it cannot be trusted."""

    async def close(self) -> None:
        """Finish the commits under way and let go of everything."""

    async def commit(self, changes: Sequence[AnyChange]) -> None:
        """Make the changes durable, all or none, in the order of the calls.

        When it returns they are part of `state` and every listener has seen them. StoreError means
        that they are not part of it; after a restart they may turn out to have happened.
        """

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each batch of changes, once it is part of `state`."""

    async def allocate_producer_ids(self, count: int) -> range:
        """Producer ids that nobody has had and nobody else will get, crashes included."""
