"""A cluster on the screen: its brokers, what they lead, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.cli.clients import REQUEST_TIMEOUT_S, cluster_metadata, failures
from moldau.cli.reassignments import Ongoing
from moldau.cli.rebalance import Replicas
from moldau.cli.views.output import show, show_table
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerView:
    id: int
    address: str
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    place: TopicPartition
    leader: int
    replicas: Replicas
    isr: Replicas

    @property
    def missing(self) -> Replicas:
        """Replicas that are not in sync."""
        return tuple(broker for broker in self.replicas if broker not in self.isr)

    @property
    def is_offline(self) -> bool:
        return self.leader == NO_LEADER


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str
    controller: int
    brokers: tuple[BrokerView, ...]
    partitions: tuple[PartitionView, ...]
    moving: Mapping[TopicPartition, Ongoing]

    @property
    def under_replicated(self) -> list[PartitionView]:
        """Those that lack a replica which is not only on its way."""
        return [
            each for each in self.partitions if set(each.missing) - set(self._adding(each.place))
        ]

    @property
    def offline(self) -> list[PartitionView]:
        return [each for each in self.partitions if each.is_offline]

    def _adding(self, place: TopicPartition) -> Replicas:
        ongoing = self.moving.get(place)
        return () if ongoing is None else ongoing.adding


def look(admin: AdminClient, moving: Mapping[TopicPartition, Ongoing]) -> ClusterView:
    """Return the cluster as it is now; `moving` are the partitions on the move."""
    with failures():
        described = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result()
    brokers = tuple(
        BrokerView(node.id, f"{node.host}:{node.port}", node.rack or None)
        for node in sorted(described.nodes, key=lambda node: int(node.id))
    )
    partitions = tuple(
        PartitionView((name, index), each.leader, tuple(each.replicas), tuple(each.isrs))
        for name, topic in sorted(cluster_metadata(admin).topics.items())
        for index, each in sorted(topic.partitions.items())
    )
    controller = NO_LEADER if described.controller is None else int(described.controller.id)
    return ClusterView(str(described.cluster_id), controller, brokers, partitions, moving)


def summary(view: ClusterView) -> str:
    """Return one line: how many of everything, and what is wrong."""
    topics = len({each.place[0] for each in view.partitions})
    text = (
        f"cluster {view.cluster_id}: {_count(len(view.brokers), 'broker')},"
        f" {_count(topics, 'topic')}, {_count(len(view.partitions), 'partition')}"
    )
    problems = [
        f"{len(view.offline)} offline" if view.offline else "",
        f"{len(view.under_replicated)} under-replicated" if view.under_replicated else "",
        f"{len(view.moving)} moving" if view.moving else "",
        "no controller" if view.controller == NO_LEADER else "",
    ]
    return ", ".join([text, *filter(None, problems)])


def show_cluster(view: ClusterView, *, every_partition: bool) -> None:
    """Tables: the brokers, then the partitions that need attention, or all."""
    is_well = not view.offline and not view.under_replicated and view.controller != NO_LEADER
    show(summary(view), "bold green" if is_well else "bold red" if view.offline else "bold yellow")
    show_table(
        ("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN SYNC", "ROLE"), _broker_rows(view)
    )
    wanted = [each for each in view.partitions if every_partition or _needs_attention(view, each)]
    if wanted:
        show("")
        show_table(
            ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "STATE"),
            [
                (
                    *each.place,
                    "-" if each.is_offline else each.leader,
                    ids(each.replicas),
                    ids(each.isr),
                    _state(view, each),
                )
                for each in wanted
            ],
        )


def cluster_as_json(view: ClusterView) -> dict[str, Any]:
    leads, holds, in_sync = _counts(view)
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": [
            {
                "id": broker.id,
                "address": broker.address,
                "rack": broker.rack,
                "leads": leads[broker.id],
                "replicas": holds[broker.id],
                "in_sync": in_sync[broker.id],
            }
            for broker in view.brokers
        ],
        "partitions": [
            {
                "topic": each.place[0],
                "partition": each.place[1],
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
            }
            for each in view.partitions
        ],
        "under_replicated": [_name(each) for each in view.under_replicated],
        "offline": [_name(each) for each in view.offline],
        "moving": [
            {
                "topic": topic,
                "partition": index,
                "adding": list(ongoing.adding),
                "removing": list(ongoing.removing),
            }
            for (topic, index), ongoing in sorted(view.moving.items())
        ],
    }


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


def _broker_rows(view: ClusterView) -> list[tuple[object, ...]]:
    leads, holds, in_sync = _counts(view)
    alive = {broker.id: broker for broker in view.brokers}
    rows: list[tuple[object, ...]] = []
    for number in sorted(alive.keys() | holds.keys()):
        broker = alive.get(number)
        role = "controller" if number == view.controller else "-"
        rows.append(
            (
                number,
                broker.address if broker else "-",
                (broker.rack if broker else None) or "-",
                leads[number],
                holds[number],
                in_sync[number],
                role if broker else "away",
            )
        )
    return rows


def _counts(view: ClusterView) -> tuple[Counter[int], Counter[int], Counter[int]]:
    leads = Counter(each.leader for each in view.partitions)
    holds = Counter(broker for each in view.partitions for broker in each.replicas)
    in_sync = Counter(broker for each in view.partitions for broker in each.isr)
    return leads, holds, in_sync


def _needs_attention(view: ClusterView, each: PartitionView) -> bool:
    return each.is_offline or bool(each.missing) or each.place in view.moving


def _state(view: ClusterView, each: PartitionView) -> str:
    states = []
    if each.is_offline:
        states.append("offline")
    ongoing = view.moving.get(each.place)
    if ongoing is not None:
        come = f"to {ids(ongoing.adding)}" if ongoing.adding else ""
        go = f"from {ids(ongoing.removing)}" if ongoing.removing else ""
        states.append(" ".join(filter(None, ["moving", come, go])))
    behind = [broker for broker in each.missing if ongoing is None or broker not in ongoing.adding]
    if behind:
        states.append(f"without {ids(behind)}")
    return ", ".join(states) or "-"


def _name(each: PartitionView) -> str:
    return f"{each.place[0]}-{each.place[1]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
