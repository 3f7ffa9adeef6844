"""Transactions that hold readers back: partitions whose last stable offset lags, and who is why.

A hanging transaction is open in a partition, and no coordinator knows it there: nobody will ever
end it (KIP-664).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from moldau.peer.cluster import LATEST, Cluster
from moldau.peer.transactions import DescribedTransaction, OpenTransaction, Transactions
from moldau.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Held:
    """A partition with an open transaction: `behind` messages are not shown to those who read
    committed ones."""

    place: TopicPartition
    last_stable: int
    behind: int


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
