"""The brokers of the cluster, as clients are told of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from moldau.broker.membership.departures import Departures
from moldau.broker.net.context import Context
from moldau.broker.net.listener import Listener
from moldau.broker.net.request import AskAnotherBroker
from moldau.broker.node import Node
from moldau.broker.partitions.replicas import Replicas
from moldau.cluster.state.topics import BrokerInfo, Endpoint
from moldau.wire.primitives import Endpoint as LeaderEndpoint


class KnownBrokers:
    """The brokers that are there, and those that were there a moment ago. Event loop only."""

    def __init__(
        self,
        node: Node,
        departures: Departures,
        listeners: Sequence[Listener],
        replicas: Replicas,
    ) -> None:
        self._node = node
        self._departures = departures
        self._listeners = listeners
        self._replicas = replicas

    def check_current(self) -> None:
        """Raise AskAnotherBroker while this broker is out of the cluster, unless it is alone.

        It believes what was so when it left: that it leads, or coordinates. librdkafka asks the
        broker that it used last, and would be told so again and again.
        """
        if self._replicas.is_fenced and any(id != self._node.id for id in self._node.state.brokers):
            raise AskAnotherBroker(
                "this broker is out of the cluster: ask another broker for the leader"
            )

    def describe(self, context: Context, *, with_departed: bool = False) -> list[dict[str, Any]]:
        """Return the brokers as Metadata shows them to who came in by this connection's listener.

        Who has no such listener is not shown. Without an advertised address a broker names itself
        by the address that the client reached, so that no listener has to be configured for it to
        be found again. It names itself even while it is not registered, as after the loss of a
        session: a client that is told of no broker at all has nobody left to ask.
        """
        listener = context.listener
        reached = (context.local_host, context.local_port)
        host, port = self._advertised(listener) or reached
        rack = self._node.settings.broker_rack or None
        own = BrokerInfo(
            self._node.id, host, port, rack, endpoints=(Endpoint(listener, host, port),)
        )
        departed = self._departures.brokers if with_departed else {}
        known = {**departed, **self._node.state.brokers, self._node.id: own}
        return [
            {"node_id": id, "host": host, "port": port, "rack": rack}
            for id, host, port, rack in _reached_by(listener, known.values())
        ]

    def reachable(self, listener: str) -> Collection[int]:
        """Return the registered brokers that have this listener."""
        brokers = self._node.state.brokers.items()
        return {id for id, info in brokers if info.endpoint(listener) is not None}

    def endpoints(self, listener: str) -> list[LeaderEndpoint]:
        """Return the addresses of all brokers, for answers that name a leader (KIP-951)."""
        return _reached_by(listener, self._node.state.brokers.values())

    def _advertised(self, listener: str) -> tuple[str, int] | None:
        return next(each.advertised for each in self._listeners if each.name == listener)


def _reached_by(listener: str, brokers: Iterable[BrokerInfo]) -> list[LeaderEndpoint]:
    """Return where clients of a listener reach these brokers, as far as they have it."""
    return [
        (info.id, endpoint.host, endpoint.port, info.rack)
        for info in brokers
        if (endpoint := info.endpoint(listener)) is not None
    ]
