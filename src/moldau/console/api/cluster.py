"""The cluster: what is wrong first, then its brokers and what moves between them."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.sampling.problems import Problem, Problems
from moldau.console.sampling.sample import Sample
from moldau.console.sampling.state import ClusterState, node_of, read_state, sizes
from moldau.peer.errors import PeerError, Refused
from moldau.peer.groups import Groups
from moldau.peer.transactions import Transactions
from moldau.wire.apis import Api


class Counts(msgspec.Struct):
    brokers: int
    topics: int
    partitions: int
    groups: int | None
    under_replicated: int
    offline: int


class Rates(msgspec.Struct):
    """A second; null where nothing is known yet, or where brokers do not tell."""

    in_msgs: float | None
    in_bytes: float | None
    out_bytes: float | None


class Overview(msgspec.Struct):
    problems: list[Problem]
    counts: Counts
    rates: Rates


class BrokerInfo(msgspec.Struct):
    """A broker; `bytes` are those of its replicas, null if we may not know."""

    id: int
    host: str
    port: int
    rack: str | None
    leaders: int
    replicas: int
    under_replicated: int
    bytes: int | None


class Reassignment(msgspec.Struct):
    """A partition whose replicas move."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ClusterInfo(msgspec.Struct):
    cluster_id: str
    controller: int
    brokers: list[BrokerInfo]
    reassignments: list[Reassignment]


@endpoint("GET", "api/overview")
def get_overview(call: Call) -> Overview:
    """Say what is wrong, and how much there is of everything."""
    state = read_state(call.cluster)
    groups: int | None = None
    with suppress(Refused):
        groups = len(Groups(call.cluster).listed())
    watch = call.console.watch
    sample = watch.fresh()
    counts = Counts(
        len(state.brokers),
        sum(not topic.is_internal for topic in state.topics.values()),
        len(state.places()),
        groups,
        state.under_replicated,
        state.offline,
    )
    if sample is None:
        bare = Sample(state.at_ms, state, {}, {}, {}, {})
        return Overview(Problems().of(bare), counts, Rates(None, None, None))
    problems = [each for each in watch.problems if may_see(call, state, each)]
    return Overview(problems, counts, Rates(sample.in_msgs, sample.in_bytes, watch.out_bytes))


def may_see(call: Call, state: ClusterState, problem: Problem) -> bool:
    """Return whether a problem that the console knows is about something that the visitor sees."""
    if not call.is_own and problem.topic is not None and problem.topic not in state.topics:
        return False
    if call.is_own or problem.where.kind in ("cluster", "broker"):
        return True
    if problem.where.kind == "topic":
        return problem.where.name in state.topics
    if problem.where.kind == "group":
        with suppress(PeerError):
            return any(each.name == problem.where.name for each in Groups(call.cluster).listed())
    if problem.where.kind == "transaction":
        with suppress(PeerError):
            listed = Transactions(call.cluster).listed()
            return any(each.id == problem.where.name for each in listed)
    if problem.where.kind == "pipeline":
        with suppress(PeerError):
            return any(each.name == problem.where.name for each in call.pipelines())
    return False


@endpoint("GET", "api/cluster")
def get_cluster(call: Call) -> ClusterInfo:
    """Describe the brokers, and the partitions that move."""
    state = read_state(call.cluster)
    by_broker = sizes(call.cluster, state)
    infos = {
        id: BrokerInfo(
            id, each.host, each.port, each.rack, 0, 0, 0,
            sum(by_broker[id].values()) if id in by_broker else None,
        )
        for id, each in sorted(state.brokers.items())
    }  # fmt: skip
    for topic in state.topics.values():
        for part in topic.partitions.values():
            if part.leader in infos:
                infos[part.leader].leaders += 1
            for id in part.replicas:
                if id in infos:
                    infos[id].replicas += 1
                    infos[id].under_replicated += id not in part.in_sync
    return ClusterInfo(
        state.cluster_id, state.controller, list(infos.values()), _reassignments(call, state)
    )


def _reassignments(call: Call, state: ClusterState) -> list[Reassignment]:
    if state.controller not in state.brokers:
        return []
    values = {"timeout": 5000, "topics": None}
    try:
        answer = call.cluster.to(node_of(state, state.controller)).ask(
            Api.LIST_PARTITION_REASSIGNMENTS, values
        )
    except PeerError:
        return []
    if answer.error_code:
        return []
    return [
        Reassignment(
            str(topic.name),
            int(part.partition_index),
            list(map(int, part.replicas)),
            list(map(int, part.adding_replicas)),
            list(map(int, part.removing_replicas)),
        )
        for topic in answer.topics
        for part in topic.partitions
    ]
