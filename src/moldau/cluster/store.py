"""The store of the cluster's state: one interface, whatever keeps it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from moldau.cluster.lease import Lease
from moldau.cluster.state.changes import AnyChange
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import BrokerInfo

Listener = Callable[[Sequence[AnyChange]], None]


FenceListener = Callable[[bool], None]
# The epoch of a registration, and its number (see `MetadataStore.registration`).
RegistrationListener = Callable[[int, int], None]


class StoreError(Exception):
    """The store could not be read, or a change could not be made durable."""


class Conflict(StoreError):
    """Somebody else changed the same thing first. `state` shows it by now: decide anew."""


class NotController(StoreError):
    """Another broker is the controller, and only it may commit this."""


class MetadataStore(Protocol):
    """Durable, ordered changes and the state they add up to. Event loop only.

    `state` shows only what is durable. A decision made on it holds only if nothing that it depends
    on is being committed at the same time; the controller sees to that.
    """

    @property
    def state(self) -> ClusterState:
        """The one state object, the same from `open` to `close`."""

    @property
    def lease(self) -> Lease | None:
        """The lease until which this broker may lead without hearing from the others; None if there
        are no others. The same object until `close`.
        """

    async def open(self) -> None:
        """Load the state; StoreError if it cannot be trusted."""

    async def close(self) -> None:
        """Finish the commits under way and let go of everything."""

    async def arrive(self, folder_id: str) -> None:
        """Begin to enter the cluster with this data folder. Whatever other brokers decided about an
        earlier life of this one is part of `state` when it returns, or never will be. StoreError if
        a broker with another folder lives under this id: then nothing has changed for it."""

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        """Make this broker part of the cluster; what it answers has the registration's epoch."""

    async def expel(self, broker: BrokerInfo) -> None:
        """Take back the registration of a broker that is known to be dead, if it is still this."""

    async def depose(self) -> None:
        """Remove the controller, which is known to be dead, so that another is elected."""

    async def commit(self, changes: Sequence[AnyChange], *, as_controller: bool = True) -> None:
        """Make the changes durable, those of one topic all or none, in the order of the calls.

        When it returns they are part of `state` and every listener has seen them. StoreError means
        that they are not part of it yet, though they may turn out to have happened. Conflict
        means that they were decided on a state that is no more. A leader commits changes of its
        partitions' in-sync replicas with `as_controller=False`; everything else is the controller's
        and fails with NotController elsewhere.
        """

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each batch of changes, once it is part of `state`."""

    def on_fence(self, listener: FenceListener) -> None:
        """Call `listener` with True when this broker may lead no more, since it has been out of
        touch for too long, and with False when it is registered anew."""

    def on_new_session(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        """Await `rejoin` when the registration was lost and `state` has been read anew: it enters
        the cluster again, as after a start."""

    def on_registration(self, listener: RegistrationListener) -> None:
        """Call `listener` whenever this broker has been registered, or its registration changed."""

    def on_registering(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with `registration` each time before it becomes the next number. Whether
        it has become that may never be known here, if the answer is lost or this process ends."""

    @property
    def registration(self) -> int:
        """Which registration of this broker is the last, counted over all its lives. One life has
        several; `arrive` counts too. -1 before the first."""

    def folder_id_of(self, broker: int) -> str | None:
        """Return the identity of the data folder that the broker was last registered with."""

    async def allocate_producer_ids(self, count: int) -> range:
        """Producer ids that nobody has had and nobody else will get, crashes included."""
