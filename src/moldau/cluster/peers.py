"""Peers of a broker: the others of its cluster, where they have registered."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.cluster.state.changes import AnyChange, BrokerJoined
from moldau.cluster.store import MetadataStore
from moldau.peer.peers import PeerAddress, Peers


def peers_in(store: MetadataStore, me: int) -> Peers:
    """Return the connections of the broker `me` to the others, which follow their registrations."""
    state = store.state

    def locate(broker: int) -> PeerAddress | None:
        info = state.brokers.get(broker)
        return None if info is None else PeerAddress(info.host, info.port, info.epoch)

    def notice(changes: Sequence[AnyChange]) -> None:
        if any(isinstance(change, BrokerJoined) for change in changes):
            peers.refresh()

    peers = Peers(me, locate)
    store.subscribe(notice)
    return peers
