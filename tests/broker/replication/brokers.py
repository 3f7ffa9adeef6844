"""Real brokers of one cluster on one loop, and what tests do with them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec

from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker
from moldau.broker.settings.broker import BrokerSettings
from moldau.cluster.state.changes import PartitionsChanged, TopicCreated
from moldau.cluster.state.topics import PartitionState, Topic
from moldau.peer.aio import AsyncConnection
from moldau.records.batch import batches
from moldau.records.record import Record, build_batch, records_of
from moldau.testing.waiting import until_async
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from tests.peer.peers import partitions_of

T = TypeVar("T")

WITHIN_S = 60.0

SETTINGS = {
    "listeners": "127.0.0.1:0",
    "zookeeper.session.timeout.ms": "30000",
    "replica.fetch.backoff.ms": "20",
    "replica.fetch.wait.max.ms": "100",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "shutdown.drain.ms": "200",
}


class Brokers:
    """Brokers 0, 1, ... of a cluster that meets at `connect`; each keeps its folder when it stops.

    Leaders are as the test decides them with `lead`, since nobody dies but by `stop`.
    """

    def __init__(self, connect: str, folder: Path, count: int, **settings: str) -> None:
        self._connect = connect
        self._folder = folder
        self._settings = {key.replace("_", "."): value for key, value in settings.items()}
        self._count = count
        self._running: dict[int, Broker] = {}
        self._connections: dict[tuple[int, str], AsyncConnection] = {}

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(self.start(number) for number in range(self._count)))
        states = [broker.state for broker in self._running.values()]
        await until_async(lambda: all(len(each.brokers) == self._count for each in states), "all")
        await until_async(lambda: all(each.controller_id >= 0 for each in states), "a controller")
        return self

    async def __aexit__(self, *problem: object) -> None:
        await asyncio.gather(*(self.stop(number) for number in list(self._running)))

    def __getitem__(self, number: int) -> Broker:
        return self._running[number]

    async def start(self, number: int, **settings: str) -> Broker:
        own = {
            "node.id": str(number),
            "log.dirs": str(self._folder / str(number)),
            "zookeeper.connect": self._connect,
        }
        more = {key.replace("_", "."): value for key, value in settings.items()}
        broker = Broker(BrokerSettings.parse(SETTINGS | self._settings | own | more))
        await broker.start()
        self._running[number] = broker
        return broker

    async def stop(self, number: int) -> None:
        for key in [key for key in self._connections if key[0] == number]:
            self._connections.pop(key).close()
        await self._running.pop(number).stop()

    # The cluster's decisions

    async def commit(self, change: Any) -> None:
        """As the controller; done when every broker knows."""
        await self._running[await self.controller()].store.commit([change])

    async def controller(self) -> int:
        """The one that all brokers take for it: one that was just started may not know yet."""

        def agreed() -> set[int]:
            named = {broker.state.controller_id for broker in self._running.values()}
            return named if len(named) == 1 and named <= self._running.keys() else set()

        (controller,) = await until_async(agreed, "one controller at all")
        return controller

    async def create(
        self, name: str, replicas: Sequence[int] = (0, 1), partitions: int = 1, **configs: str
    ) -> None:
        """A topic whose partitions are all led by the first of `replicas`."""
        state = PartitionState(tuple(replicas), tuple(replicas), replicas[0])
        texts = {key.replace("_", "."): value for key, value in configs.items()}
        topic = Topic(name, UUID(bytes=os.urandom(16)), (state,) * partitions, texts)
        await self.commit(TopicCreated(topic))
        await until_async(
            lambda: all(self._holds(number, topic) for number in replicas), f"{name} at all"
        )

    def _holds(self, number: int, topic: Topic) -> bool:
        last = self[number].partitions.get((topic.name, len(topic.partitions) - 1))
        return last is not None and last.topic_id == topic.id

    async def lead(
        self, name: str, leader: int, isr: Sequence[int], index: int = 0, **more: Any
    ) -> int:
        """Another leader, as it pleases the test; the new leader epoch."""
        old = self[await self.controller()].state.topics[name].partitions[index]
        new = msgspec.structs.replace(
            old, leader=leader, isr=tuple(isr), leader_epoch=old.leader_epoch + 1, **more
        )
        await self.commit(PartitionsChanged(name, {index: new}))
        await until_async(
            lambda: all(
                self.state(number, name, index).leader_epoch >= new.leader_epoch
                for number in self._running
            ),
            f"epoch {new.leader_epoch} at all",
        )
        return new.leader_epoch

    def state(self, number: int, name: str, index: int = 0) -> PartitionState:
        return self[number].state.topics[name].partitions[index]

    async def until_in_sync(self, name: str, isr: Sequence[int], index: int = 0) -> None:
        """Returns when every broker that runs knows these to be in sync."""
        await until_async(
            lambda: all(
                set(self.state(number, name, index).isr) == set(isr) for number in self._running
            ),
            f"in sync are {isr}",
        )

    # Replicas

    def partition(self, number: int, name: str, index: int = 0) -> Partition:
        return self[number].partitions[name, index]

    def ends(self, name: str, *numbers: int) -> list[int]:
        return [self.partition(number, name).log.log_end for number in numbers]

    async def until_same(self, name: str, *numbers: int, watermark: int | None = None) -> None:
        """Returns when the replicas hold the same bytes and know the same high watermark."""

        def is_same() -> bool:
            logs = [self.partition(number, name).log for number in numbers]
            places = {(log.log_start, log.log_end, log.high_watermark) for log in logs}
            return len(places) == 1 and (watermark is None or logs[0].high_watermark == watermark)

        await until_async(is_same, f"{name} the same at {numbers}")
        contents = {content(self.partition(number, name)) for number in numbers}
        assert len(contents) == 1, "the replicas hold different bytes"
        epochs = {epochs_of(self.partition(number, name)) for number in numbers}
        assert len(epochs) == 1, epochs

    async def until_same_values(
        self, name: str, leader: int, follower: int, values: list[str]
    ) -> None:
        """Returns when a follower has what a consumer finds at the leader, in the same place."""
        assert await self.values(leader, name) == values
        one, other = self.partition(leader, name).log, self.partition(follower, name).log
        await until_async(
            lambda: (one.log_start, one.log_end) == (other.log_start, other.log_end),
            f"{follower} has caught up",
        )
        assert held(self.partition(follower, name))[-len(values) :] == values

    def deafen(self, number: int) -> None:
        """Keeps a broker from copying anything, whatever its roles, until `hear`."""
        replication = self[number].replication
        replication._is_running = False
        for partition in self[number].partitions.values():
            replication.partition_changed(partition)

    def hear(self, number: int) -> None:
        self[number].replication.start()

    # Clients

    async def connection(self, number: int, name: str = "test") -> AsyncConnection:
        known = self._connections.get((number, name))
        if known is None or not known.is_open:
            broker = self[number]
            known = await AsyncConnection.connect(broker.host, broker.port, name)
            self._connections[number, name] = known
        return known

    async def ask(self, number: int, api: Api, **values: Any) -> Any:
        return await (await self.connection(number)).ask(api, values)

    async def produce(
        self,
        number: int,
        name: str,
        *values: str,
        acks: int = 1,
        index: int = 0,
        timeout_ms: int = 60_000,
        **more: Any,
    ) -> Any:
        """The broker's answer for a batch of these values."""
        records = [Record(at, _now_ms(), None, each.encode()) for at, each in enumerate(values)]
        batch = bytes(build_batch(records, **more))
        answer = await self.ask(
            number,
            Api.PRODUCE,
            acks=acks,
            timeout=timeout_ms,
            topic_data=[
                {
                    "topic_id": self[number].state.topics[name].id,
                    "partition_data": [{"index": index, "records": batch}],
                }
            ],
        )
        return answer.responses[0].partition_responses[0]

    async def write(self, number: int, name: str, *values: str, **more: Any) -> int:
        """The offset that the broker gave to a batch that it took."""
        answer = await self.produce(number, name, *values, **more)
        assert answer.error_code == Error.NONE, answer
        return int(answer.base_offset)

    async def fetch(
        self, number: int, name: str, offset: int = 0, *, topic_id: UUID | None = None, **more: Any
    ) -> FetchedPartition:
        """The broker's answer to a consumer."""
        topic_id = topic_id or self[number].state.topics[name].id
        request = FetchRequest([(topic_id, [FetchPartition(0, fetch_offset=offset)])], **more)
        # Not behind a write that waits: answers come in the order of the questions.
        answer = await (await self.connection(number, "reader")).fetch(request)
        return partitions_of(answer)[0]

    async def delete_records(
        self, number: int, name: str, before: int, timeout_ms: int = 60_000
    ) -> tuple[Error, int]:
        wanted = [{"partition_index": 0, "offset": before}]
        answer = await self.ask(
            number,
            Api.DELETE_RECORDS,
            topics=[{"name": name, "partitions": wanted}],
            timeout=timeout_ms,
        )
        (found,) = answer.topics[0].partitions
        return Error(found.error_code), int(found.low_watermark)

    async def values(self, number: int, name: str) -> list[str]:
        """What a consumer finds at the leader."""
        fetched = await self.fetch(number, name, self.partition(number, name).log.log_start,
                                   max_wait_ms=0)  # fmt: skip
        assert not fetched.error, Error(fetched.error)
        return _values(bytes(fetched.records or b""))


def content(partition: Partition) -> bytes:
    """Everything in a replica's log, byte for byte."""
    log = partition.log
    return b"".join(
        os.pread(segment.open().fd, segment.size, 0) for segment in log.segments if segment.size
    )


def epochs_of(partition: Partition) -> tuple[tuple[int, int], ...]:
    """The epochs that wrote something, which is all that a follower can know."""
    log = partition.log
    return tuple(entry for entry in log.epochs.entries if entry[1] < log.log_end)


def held(partition: Partition) -> list[str]:
    """The values in a replica's log, visible or not."""
    return _values(content(partition))


def _values(data: bytes) -> list[str]:
    return [
        (record.value or b"").decode()
        for position, _ in batches(data)
        for record in records_of(data, position)
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
