"""A member of a share group over the wire, in raw requests."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID

from moldau.broker.coordination.share.state import topic_id_text
from moldau.broker.sharing.delivery import Acknowledgement as Kind
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, read_records

ACCEPT, RELEASE, REJECT, RENEW = Kind.ACCEPT, Kind.RELEASE, Kind.REJECT, Kind.RENEW
Said = dict[int, list[tuple[int, int, Any]]]


class Member:
    """Fetches from partitions of one topic, and says what became of the records."""

    def __init__(
        self, broker: Broker | tuple[str, int], group: str, topic_id: UUID, name: str = "m"
    ) -> None:
        self.client = Client(broker)
        self.group = group
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.client.close()

    def values(self, said: Said, partitions: tuple[int, ...], epoch: int | None) -> dict[str, Any]:
        used = self.epoch if epoch is None else epoch
        if epoch is None:
            self.epoch += 1
        return {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": used,
            "topics": [
                {
                    "topic_id": self.topic_id,
                    "partitions": [
                        {
                            "partition_index": index,
                            "acknowledgement_batches": [
                                {
                                    "first_offset": first,
                                    "last_offset": last,
                                    "acknowledge_types": kind if isinstance(kind, list) else [kind],
                                }
                                for first, last, kind in said.get(index, ())
                            ],
                        }
                        for index in sorted({*partitions, *said})
                    ],
                }
            ],
        }

    def send_fetch(
        self,
        said: Said | None = None,
        *,
        partitions: tuple[int, ...] = (0,),
        epoch: int | None = None,
        wait_ms: int = 0,
        **more: Any,
    ) -> None:
        """Ask for records."""
        limits = {"max_wait": wait_ms, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        values = self.values(said or {}, partitions, epoch)
        self.client.send(Api.SHARE_FETCH, **{**limits, **values, **more})

    def fetch(self, said: Said | None = None, **more: Any) -> Any:
        """Return the whole answer."""
        self.send_fetch(said, **more)
        return self.client.receive()

    def take(self, said: Said | None = None, **more: Any) -> list[tuple[int, int, int]]:
        """Return what was acquired of partition 0, once the partition is shared at all."""
        return acquired(self.fetch(said, wait_ms=more.pop("wait_ms", 10_000), **more))

    def acknowledge(self, said: Said, *, epoch: int | None = None, **more: Any) -> Any:
        """Return the whole answer."""
        values = self.values(said, (), epoch)
        return self.client.ask(Api.SHARE_ACKNOWLEDGE, **{**values, **more})


def partition_of(answer: Any, index: int = 0) -> Any:
    """Return what an answer says of a partition; None if it says nothing."""
    assert not answer.error_code, answer
    for topic in answer.responses:
        for each in topic.partitions:
            if each.partition_index == index:
                return each
    return None


def acquired(answer: Any, index: int = 0) -> list[tuple[int, int, int]]:
    """Return the ranges that were acquired, and how often they were delivered."""
    found = partition_of(answer, index)
    if found is None:
        return []
    assert not found.error_code, found
    ranges = [(a.first_offset, a.last_offset, a.delivery_count) for a in found.acquired_records]
    if ranges:
        offsets = {record.offset for record in read_records(found.records)}
        assert {ranges[0][0], ranges[-1][1]} <= offsets, "records without their data"
    return ranges


def initialize(client: Client, group: str, topic_id: UUID, start: int = 0, index: int = 0) -> None:
    """Begin the state of a partition, as the coordinator of a group does for its members."""
    key = f"{group}:{topic_id_text(topic_id)}:{index}"
    found = client.ask(Api.FIND_COORDINATOR, key_type=2, coordinator_keys=[key])
    assert not found.coordinators[0].error_code, found
    partition = {"partition": index, "state_epoch": 0, "start_offset": start}
    answer = client.ask(
        Api.INITIALIZE_SHARE_GROUP_STATE,
        group_id=group,
        topics=[{"topic_id": topic_id, "partitions": [partition]}],
    )
    assert not answer.results[0].partitions[0].error_code, answer
