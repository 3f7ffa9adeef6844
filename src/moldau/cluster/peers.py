"""Peers of a broker: the others of its cluster, where they have registered."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.cluster.state.changes import AnyChange, BrokerJoined
from moldau.cluster.store import MetadataStore
from moldau.peer.peers import PeerAddress, Peers


def peers_in(store: MetadataStore, me: int, listener: str = "") -> Peers:
    """Return the connections of the broker `me` to the others, which follow their registrations.

    They go to the `listener` by which others reach `me`, as far as another broker has that: in a
    change from one to another, each broker uses its own while all have both.
    """
    state = store.state

    def locate(broker: int) -> PeerAddress | None:
        info = state.brokers.get(broker)
        if info is None:
            return None
        endpoint = info.endpoint(listener)
        if endpoint is None:
            return PeerAddress(info.host, info.port, info.epoch)
        return PeerAddress(endpoint.host, endpoint.port, info.epoch)

    def notice(changes: Sequence[AnyChange]) -> None:
        if any(isinstance(change, BrokerJoined) for change in changes):
            peers.refresh()

    peers = Peers(me, locate)
    store.subscribe(notice)
    return peers
