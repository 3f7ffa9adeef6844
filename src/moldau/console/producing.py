"""Producing: a few records at a time, acknowledged by all replicas in sync."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api

# The last version that names topics by name.
_BY_NAME = 12
_ALL_REPLICAS = -1


def produce(cluster: Cluster, topic: str, partition: int, records: Sequence[Record]) -> int:
    """Write records and return the offset of the first.

    Asked once: whether an answer that got lost was a yes cannot be known, and a person can look.
    """
    numbered = [record._replace(offset=number) for number, record in enumerate(records)]
    data = {"index": partition, "records": bytes(build_batch(numbered))}
    values = {
        "transactional_id": None,
        "acks": _ALL_REPLICAS,
        "timeout": int(cluster.settings.request_timeout_s * 1000),
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }
    node, _, _ = cluster.insist(lambda: cluster.leader_of(topic, partition))
    answer = cluster.to(node).ask(Api.PRODUCE, values, _BY_NAME)
    (told,) = answer.responses[0].partition_responses
    if told.error_code:
        raise Refused(int(told.error_code), f"{topic}-{partition}", told.error_message)
    return int(told.base_offset)
