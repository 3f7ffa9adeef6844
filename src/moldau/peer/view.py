"""A view of a cluster: its brokers, topics and leaders, from one Metadata response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from moldau.peer.errors import Refused, UnknownTopic
from moldau.wire.errors import Error

_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition; -1 for none, and for an epoch that an old broker does not send."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic, or why the broker does not show it; `id` is None where brokers have no ids."""

    name: str
    id: UUID | None
    error: int
    is_internal: bool
    leaders: dict[int, Leader]

    @property
    def exists(self) -> bool:
        return self.error not in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)

    def check(self) -> None:
        """Raise the error that keeps this topic from being used."""
        if not self.exists:
            raise UnknownTopic(self.name)
        if self.error != Error.NONE:
            raise Refused(self.error, f"topic {self.name!r}")


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One answer to Metadata."""

    nodes: dict[int, Node]
    topics: dict[str, TopicView]

    @classmethod
    def of(cls, response: Any) -> ClusterView:
        """From kio's object of any version."""
        nodes = {
            int(broker.node_id): Node(int(broker.node_id), str(broker.host), int(broker.port))
            for broker in response.brokers
        }
        return cls(nodes, {str(topic.name): _topic(topic) for topic in response.topics})


def _topic(topic: Any) -> TopicView:
    topic_id = getattr(topic, "topic_id", None)
    leaders = {
        int(partition.partition_index): Leader(
            int(partition.leader_id), int(getattr(partition, "leader_epoch", -1))
        )
        for partition in topic.partitions
    }
    return TopicView(
        name=str(topic.name),
        id=None if topic_id in (None, _NO_ID) else topic_id,
        error=int(topic.error_code),
        is_internal=bool(getattr(topic, "is_internal", False)),
        leaders=leaders,
    )


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """Return the addresses of `host:port,[v6]:port`; ValueError names the one that is wrong."""
    found = []
    for address in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{address!r} is not an address; expected HOST:PORT, for example 127.0.0.1:9092"
            )
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no address given; expected HOST:PORT, for example 127.0.0.1:9092")
    return found
