"""A blocking client that sends what it is told to, nonsense too, and reads answers in order."""

from __future__ import annotations

import itertools
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec

from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.cluster.state.changes import PartitionsChanged
from moldau.records.batch import batches
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, records_of
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import VERSIONS, Api, is_flexible
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

T = TypeVar("T")

PATIENCE_S = 60.0
_SIZE = Struct(">i")
_LINGER = Struct("ii")
_names = itertools.count()


def fresh_name(prefix: str = "wire") -> str:
    """A topic name that no other test has."""
    return f"{prefix}-{next(_names)}"


def versions(api: Api) -> range:
    """Every version of an API that a broker answers."""
    return range(VERSIONS[api].first, VERSIONS[api].last + 1)


def inside(broker: Broker, work: Callable[[Server], T]) -> T:
    """What `work` gives on the broker's own loop."""
    server = broker._server
    assert server is not None

    async def call() -> T:
        return work(server)

    return broker._call(call())


def add_missing_replica(broker: Broker, topic: str) -> None:
    """Gives a topic a second replica, at a broker that never was, which is not in sync."""
    server = broker._server
    assert server is not None

    async def add() -> None:
        partitions = server.state.topics[topic].partitions
        changed = {
            index: msgspec.structs.replace(partition, replicas=(*partition.replicas, 99))
            for index, partition in enumerate(partitions)
        }
        await server.store.commit([PartitionsChanged(topic, changed)])

    broker._call(add())


def append_open(broker: Broker, topic: str, value: bytes, at_ms: int | None = None) -> None:
    """Writes a batch of a transaction that nobody ends, which no client could."""
    written_ms = now_ms() if at_ms is None else at_ms
    batch = make_batch(
        value, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    )

    def append(server: Server) -> None:
        partition = server.partitions[topic, 0]
        guard = partition.log.producers.verifications.begin(9, 0, 0, written_ms, False)
        partition.append(memoryview(batch), written_ms, guard=guard)
        server.partitions.commit([])

    inside(broker, append)


def until_parked(partition: Partition, count: int = 1) -> None:
    """Returns when so many requests wait for the partition."""
    until(lambda: len(partition.waiters or ()) == count, f"{count} waiting requests")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_batch(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int | None = None,
    codec: Codec = Codec.NONE,
    **more: Any,
) -> bytearray:
    """A batch with these values, as a producer sends it."""
    stamp = now_ms() if timestamp is None else timestamp
    records = [Record(place, stamp, key, value) for place, value in enumerate(values)]
    return build_batch(records, codec, **more)


def read_records(data: bytes | None) -> list[Record]:
    """The records of the whole batches in `data`."""
    found: list[Record] = []
    for position, _ in batches(data or b""):
        found += records_of(data or b"", position)
    return found


class Client:
    """One connection to a broker."""

    def __init__(self, broker: Broker | tuple[str, int]) -> None:
        self._broker = None if isinstance(broker, tuple) else broker
        self._lacking: list[str] = []
        address = broker if isinstance(broker, tuple) else (broker.host, broker.port)
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)
        self._asked: deque[tuple[int, Api, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()
        if self._broker is not None and self._lacking:
            # A topic with a broker that never was would puzzle the next user of a shared one.
            lacking, self._lacking = self._lacking, []
            with Client(self._broker) as client:
                client.ask(Api.DELETE_TOPICS, topics=[{"name": each} for each in lacking])

    def reset(self) -> None:
        """Closes the connection as a crash does: the broker cannot take it for a half-close."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(1, 0))
        self.socket.close()

    # Requests and answers

    def frame(self, api: Api, version: int | None = None, **values: Any) -> bytes:
        """A whole request, remembered as one whose answer is to come."""
        if version is None:
            version = VERSIONS[api].last
        correlation_id = next(self._ids)
        self._asked.append((correlation_id, api, version))
        body = encode_request(api, version, values)
        return request_frame(api, version, correlation_id, "wire-client", body)

    def send(self, api: Api, version: int | None = None, **values: Any) -> None:
        self.socket.sendall(self.frame(api, version, **values))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Any:
        """The next answer; it must be the one to the oldest request that has none yet."""
        frame = self.receive_frame()
        correlation_id, api, version = self._asked.popleft()
        assert _SIZE.unpack_from(frame)[0] == correlation_id
        has_tags = is_flexible(api, version) and api is not Api.API_VERSIONS
        return decode_response(api, version, memoryview(frame)[5 if has_tags else 4 :])

    def receive_frame(self) -> bytes:
        """The next answer from its correlation id on."""
        return self._read(_SIZE.unpack(self._read(4))[0])

    def ask(self, api: Api, version: int | None = None, **values: Any) -> Any:
        self.send(api, version, **values)
        return self.receive()

    def expect_nothing(self, seconds: float = 0.05) -> None:
        """Fails if the broker sends anything in the next moments."""
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(1)
        except TimeoutError:
            return
        finally:
            self.socket.settimeout(PATIENCE_S)
        raise AssertionError(f"the broker sent {data!r}" if data else "the broker hung up")

    def is_closed(self) -> bool:
        """Whether the broker ends the connection; what it says before is dropped."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    # What tests do most

    def create(self, name: str | None = None, partitions: int = 1, **configs: str) -> str:
        """Creates a topic, whose settings have underscores for dots; its name.

        One that wants more than one replica in sync has another, which is not.
        """
        topic = name or fresh_name()
        texts = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        answer = self.ask(Api.CREATE_TOPICS, topics=[wanted | {"configs": texts}])
        assert answer.topics[0].error_code == 0, answer
        if self._broker is not None and int(configs.get("min_insync_replicas", "1")) > 1:
            add_missing_replica(self._broker, topic)
            if name is None:
                self._lacking.append(topic)
        return topic

    def alter(self, topic: str, **configs: str) -> None:
        """Changes settings of a topic, which have underscores for dots."""
        texts = [
            {"name": key.replace("_", "."), "config_operation": 0, "value": value}
            for key, value in configs.items()
        ]
        resource = {"resource_type": 2, "resource_name": topic, "configs": texts}
        answer = self.ask(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code == 0, answer

    def topic_id(self, topic: str) -> UUID:
        answer = self.ask(Api.METADATA, topics=[{"name": topic}], allow_auto_topic_creation=False)
        found: UUID = answer.topics[0].topic_id
        return found

    def send_produce(
        self,
        topic: str | UUID,
        batch: bytes | bytearray | None,
        *,
        version: int = 9,
        acks: int = -1,
        partition: int = 0,
    ) -> None:
        self.send(Api.PRODUCE, version, **produce_values({topic: {partition: batch}}, acks=acks))

    def produce(
        self,
        topic: str | UUID,
        batch: bytes | bytearray | None,
        *,
        version: int = 9,
        acks: int = -1,
        partition: int = 0,
    ) -> Any:
        """The answer for the partition."""
        self.send_produce(topic, batch, version=version, acks=acks, partition=partition)
        return self.receive().responses[0].partition_responses[0]

    def send_fetch(
        self, wanted: Mapping[Any, Iterable[Any]], *, version: int = 12, **more: Any
    ) -> None:
        self.send(Api.FETCH, version, **fetch_values(wanted, **more))

    def fetch(
        self, topic: str | UUID, offset: int, *, version: int = 12, partition: int = 0, **more: Any
    ) -> Any:
        """The answer for the one partition."""
        wanted = {"partition": partition, "fetch_offset": offset}
        for key in ("partition_max_bytes", "current_leader_epoch"):
            if key in more:
                wanted[key] = more.pop(key)
        self.send_fetch({topic: [wanted]}, version=version, **more)
        return self.receive().responses[0].partitions[0]

    def end_of(self, topic: str, partition: int = 0) -> int:
        wanted = {"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}
        answer = self.ask(Api.LIST_OFFSETS, topics=[{"name": topic, "partitions": [wanted]}])
        assert answer.topics[0].partitions[0].error_code == 0, answer
        end: int = answer.topics[0].partitions[0].offset
        return end

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Everything that the partition holds, read to its end."""
        found: list[bytes | None] = []
        offset = 0
        end = self.end_of(topic, partition)
        while offset < end:
            answer = self.fetch(topic, offset, partition=partition)
            assert answer.error_code == 0, answer
            records = [each for each in read_records(answer.records) if each.offset >= offset]
            assert [each.offset for each in records] == list(range(offset, offset + len(records)))
            found += [each.value for each in records]
            offset += len(records)
        return found


def produce_values(topics: Mapping[Any, Mapping[int, Any]], *, acks: int = -1) -> dict[str, Any]:
    """The fields of a Produce request."""
    data = [
        {
            _key_name(topic, "name"): topic,
            "partition_data": [
                {"index": index, "records": None if batch is None else bytes(batch)}
                for index, batch in partitions.items()
            ],
        }
        for topic, partitions in topics.items()
    ]
    return {"acks": acks, "timeout": 5000, "topic_data": data}


def fetch_values(
    wanted: Mapping[Any, Iterable[Any]],
    *,
    forgotten: Mapping[Any, Iterable[int]] | None = None,
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = 0,
) -> dict[str, Any]:
    """The fields of a Fetch request; a partition that is a mere number is read from 0."""
    defaults = {"partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    defaults |= {"last_fetched_epoch": -1, "log_start_offset": -1, "fetch_offset": 0}
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "isolation_level": isolation_level,
        "topics": [
            {
                _key_name(topic, "topic"): topic,
                "partitions": [
                    defaults | (each if isinstance(each, dict) else {"partition": each})
                    for each in partitions
                ],
            }
            for topic, partitions in wanted.items()
        ],
        "forgotten_topics_data": [
            {_key_name(topic, "topic"): topic, "partitions": list(indexes)}
            for topic, indexes in (forgotten or {}).items()
        ],
        "rack_id": "",
    }


def _key_name(topic: str | UUID, name: str) -> str:
    return "topic_id" if isinstance(topic, UUID) else name
