"""Rows that must be in the topics that the sink writes to, and those that are, by a consumer and on
disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from moldau.testing import Cluster
from tests.spark.topics import read_by_librdkafka
from tests.torture.messages import Wrong
from tests.torture.sink_driver import ROWS_OF_A_WRITE
from tests.transactions.replica import read_replica

# What the sink says when a write comes to nothing.
_NOT_MADE = ("can no longer write", "accepts no more rows", "rows were not written")


def committed(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    """The values in a topic, as a read-committed consumer of librdkafka finds them.

    Wrong unless every replica on a disk has the same, by its own markers, and nothing is open.
    """
    found = [row["value"] for row in read_by_librdkafka(cluster, topic, partitions)]
    for broker in cluster.brokers:
        on_disk: list[bytes] = []
        for partition in range(partitions):
            entries = read_replica(cluster.data_dir(broker) / f"{topic}-{partition}")
            if any(entry.commits is None for entry in entries):
                raise Wrong(f"{topic}-{partition} on broker {broker} has an open transaction")
            on_disk += [entry.value for entry in entries if entry.commits]
        if Counter(on_disk) != Counter(found):
            raise Wrong(
                f"{topic}: a consumer finds {len(found)} rows, broker {broker} has {len(on_disk)}"
            )
    return found


def compare(what: str, found: Iterable[int], expected: set[int]) -> None:
    """Wrong unless every number is there, once."""
    times = Counter(found)
    twice = sorted(number for number in times if times[number] > 1)
    missing = sorted(expected - times.keys())
    strange = sorted(times.keys() - expected)
    if twice or missing or strange:
        raise Wrong(
            f"{what}: {len(missing)} of {len(expected)} rows are missing, such as {missing[:5]}; "
            f"{len(twice)} are there more than once, such as {twice[:5]}; {strange[:5]} are strange"
        )


def after_failure(
    labels: Iterable[str], written: Collection[str], problem: str
) -> dict[str, bool | None]:
    """What must have become of the writes of an order, one after another, the first of which that
    is not `written` has failed. For the ledger of `compare_writes`.

    Only the sink itself says for certain that it was not made. Spark may have lost the process that
    committed it.
    """
    left = [label for label in labels if label not in written]
    outcome: dict[str, bool | None] = dict.fromkeys(left, False)
    if not any(words in problem for words in _NOT_MADE):
        outcome |= dict.fromkeys(left[:1])
    return outcome


def compare_writes(found: Iterable[bytes], ledger: Mapping[str, bool | None]) -> int:
    """Wrong unless each single write is there in whole or not at all, as the ledger has it.

    None stands for a driver that died without a word. Returns how many are there.
    """
    rows: dict[str, list[int]] = {}
    for value in found:
        label, _, number = value.decode().partition(" ")
        rows.setdefault(label, []).append(int(number))
    if strange := sorted(rows.keys() - ledger.keys()):
        raise Wrong(f"nobody made these writes: {strange[:5]}")
    for label, is_made in ledger.items():
        if label in rows and is_made is False:
            raise Wrong(f"write {label} was not decided, and is there")
        if label in rows or is_made:
            compare(f"write {label}", rows.get(label, []), set(range(ROWS_OF_A_WRITE)))
    return len(rows)
