"""Transactions that hold readers back: partitions whose last stable offset lags, and who is why.

A hanging transaction is open in a partition, and no coordinator knows it there: nobody will ever
end it (KIP-664).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moldau.peer.cluster import LATEST, Cluster
from moldau.peer.transactions import DescribedTransaction, OpenTransaction, Transactions
from moldau.topic_partition import TopicPartition

# Of Kafka's defaults the longest timeout that a producer may ask for is this.
LONG_S = 15 * 60.0
MANY_MESSAGES = 100_000


@dataclass(frozen=True, slots=True)
class Held:
    """A partition with an open transaction: `behind` messages are not shown to those who read
    committed ones."""

    place: TopicPartition
    last_stable: int
    behind: int


@dataclass(frozen=True, slots=True)
class Late:
    """A transaction that holds readers of a partition back for long, or far behind."""

    transaction: DescribedTransaction
    held: Held
    open_s: float


def places_of(cluster: Cluster, topics: Collection[str] = ()) -> tuple[list[TopicPartition], int]:
    """Return the partitions of these topics, or of all, and how many more have no leader."""
    view = cluster.metadata(topics or None)
    places, without_leader = [], 0
    for name, topic in sorted(view.topics.items()):
        topic.check()
        for index, leader in sorted(topic.leaders.items()):
            if leader.node_id in view.nodes:
                places.append((name, index))
            else:
                without_leader += 1
    return places, without_leader


def held_back(cluster: Cluster, places: Iterable[TopicPartition]) -> list[Held]:
    """Return those of the partitions in which a transaction is open."""
    wanted = dict.fromkeys(places, LATEST)
    # Asked for first: what is written meanwhile must not look as if it were held back.
    watermarks = cluster.list_offsets(wanted)
    stable = cluster.list_offsets(wanted, read_committed=True)
    return [
        Held(place, found.offset, watermarks[place].offset - found.offset)
        for place, found in stable.items()
        if found.offset < watermarks[place].offset
    ]


def find_hanging(
    transactions: Transactions, places: Collection[TopicPartition], older_than_s: float = 0.0
) -> list[OpenTransaction]:
    """Return the hanging transactions in these partitions.

    The order of questions matters. A coordinator knows a partition before a transaction is open
    there and until it has ended there. So whatever is open, unknown to all coordinators afterwards,
    and still open after that, is hanging, however much happens meanwhile.
    """
    latest_ms = time.time() * 1000 - older_than_s * 1000
    suspects = [each for each in transactions.open_in(places) if each.written_ms <= latest_ms]
    if not suspects:
        return []
    known = known_places(transactions.of_producers({each.producer_id for each in suspects}))
    suspects = [each for each in suspects if (each.producer_id, each.place) not in known]
    still_open = set(transactions.open_in({each.place: None for each in suspects}))
    return [each for each in suspects if each in still_open]


def find_late(
    described: Collection[DescribedTransaction],
    found: Iterable[OpenTransaction],
    held: Mapping[TopicPartition, Held],
) -> list[Late]:
    """Return the transactions that are where a last stable offset stays, far behind or for long."""
    first = {(each.producer_id, each.place): each.start_offset for each in found}
    by_id = {each.id: each for each in described}
    late: dict[str, Late] = {}
    for (producer_id, place), id in known_places(described).items():
        here = held.get(place)
        if here is None or first.get((producer_id, place)) != here.last_stable or id in late:
            continue
        open_s = max(0.0, time.time() - (by_id[id].started_ms or 0) / 1000)
        if open_s >= LONG_S or here.behind >= MANY_MESSAGES:
            late[id] = Late(by_id[id], here, open_s)
    return list(late.values())


def known_places(
    described: Iterable[DescribedTransaction],
) -> dict[tuple[int, TopicPartition], str]:
    """Return the transactional id by producer and partition."""
    return {(each.producer_id, place): each.id for each in described for place in each.partitions}


def abort_command(hanging: OpenTransaction) -> str:
    """Return the command that ends it."""
    topic, index = hanging.place
    return (
        f"moldau transactions abort --topic {topic} --partition {index} "
        f"--producer-id {hanging.producer_id}"
    )
