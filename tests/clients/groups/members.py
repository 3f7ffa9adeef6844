"""Members of groups by three client libraries, each on a thread, and a ledger of what they do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Self

import aiokafka
import confluent_kafka
import kafka

from moldau.testing import Broker

PATIENCE_S = 60.0
HEARTBEAT_MS = 100
SESSION_MS = 20_000


class Ledger:
    """Who owns which partition, and how often each message was handled. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: dict[int, str] = {}
        self.handled: Counter[tuple[int, int]] = Counter()
        self.assigned: Counter[str] = Counter()
        self.revoked: Counter[str] = Counter()
        self.violations: list[str] = []

    def take(self, name: str, partitions: Iterable[int]) -> None:
        with self._lock:
            for partition in partitions:
                owner = self.owners.setdefault(partition, name)
                if owner != name:
                    self.violations.append(f"{name} was given {partition}, which {owner} has")
                self.assigned[name] += 1

    def give_up(self, name: str, partitions: Iterable[int]) -> None:
        with self._lock:
            for partition in partitions:
                if self.owners.get(partition) == name:
                    del self.owners[partition]
                    self.revoked[name] += 1

    def handle(self, name: str, partition: int, offset: int) -> None:
        if self.owners.get(partition) != name:
            self.violations.append(f"{name} handled {partition}, which is not its own")
        with self._lock:
            self.handled[partition, offset] += 1

    def owned_by(self, name: str) -> set[int]:
        with self._lock:
            return {partition for partition, owner in self.owners.items() if owner == name}

    def is_shared_by(self, count: int, *names: str) -> bool:
        """Whether each of `count` partitions has one owner, and each of the names has some."""
        with self._lock:
            owners = set(self.owners.values())
            return len(self.owners) == count and owners == set(names)

    def check(self) -> None:
        assert self.violations == []


class Member:
    """A consumer of topic `t` on a thread of its own, which hands over cleanly."""

    def __init__(self, broker: Broker, ledger: Ledger, name: str, group: str = "g") -> None:
        self.broker = broker
        self.ledger = ledger
        self.name = name
        self.group = group
        self.problem: BaseException | None = None
        self._stopping = threading.Event()
        self._positions: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave cleanly; raises what went wrong on the thread."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        try:
            self.consume()
        except BaseException as problem:
            self.problem = problem

    def consume(self) -> None:
        raise NotImplementedError

    def handle(self, partition: int, offset: int) -> None:
        self.ledger.handle(self.name, partition, offset)
        self._positions[partition] = offset + 1

    def release(self, partitions: Iterable[int]) -> dict[int, int]:
        """The positions to commit for partitions that go to somebody else."""
        return {each: self._positions.pop(each) for each in partitions if each in self._positions}


class ConfluentMember(Member):
    """librdkafka, eager or cooperative."""

    def __init__(self, *given: Any, assignor: str = "range", **settings: Any) -> None:
        super().__init__(*given)
        self.is_cooperative = assignor == "cooperative-sticky"
        self.errors: list[confluent_kafka.KafkaError] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": self.group,
                "client.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
                **self.settings(assignor),
                **settings,
            }
        )

    def settings(self, assignor: str) -> dict[str, Any]:
        """Those that only one of the protocols has."""
        return {
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": SESSION_MS,
        }

    def consume(self) -> None:
        self.consumer.subscribe(
            ["t"], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )
        while not self._stopping.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.handle(int(message.partition() or 0), int(message.offset() or 0))
            else:
                self.errors.append(error)
                if error.code() == confluent_kafka.KafkaError._FATAL:
                    break
        self.consumer.close()
        # A static member goes away without a word, so it hands nothing over.
        self.ledger.give_up(self.name, self.ledger.owned_by(self.name))

    def _assign(self, consumer: confluent_kafka.Consumer, partitions: list[Any]) -> None:
        self.ledger.take(self.name, [each.partition for each in partitions])
        if self.is_cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoke(self, consumer: confluent_kafka.Consumer, partitions: list[Any]) -> None:
        positions = self.release(each.partition for each in partitions)
        offsets = [confluent_kafka.TopicPartition("t", *each) for each in positions.items()]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=False)
        self.ledger.give_up(self.name, [each.partition for each in partitions])
        if self.is_cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _lose(self, consumer: confluent_kafka.Consumer, partitions: list[Any]) -> None:
        self.release(each.partition for each in partitions)
        self.ledger.give_up(self.name, [each.partition for each in partitions])
        if self.is_cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


class ConsumerProtocolMember(ConfluentMember):
    """librdkafka with the protocol of KIP-848: the coordinator assigns."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, assignor="cooperative-sticky", **settings)

    def settings(self, assignor: str) -> dict[str, Any]:
        return {"group.protocol": "consumer"}


class KafkaPythonMember(Member, kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """kafka-python. Its listeners must not block, so it commits after every poll."""

    def consume(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        consumer.subscribe(["t"], listener=self)
        while not self._stopping.is_set():
            # Longer than a join takes: kafka-python forgets its assignment if a poll ends in one.
            for batch in consumer.poll(timeout_ms=500, max_records=100).values():
                for message in batch:
                    self.handle(message.partition, message.offset)
            positions = self.release(list(self._positions))
            if positions:
                consumer.commit(
                    {
                        kafka.TopicPartition("t", each): kafka.OffsetAndMetadata(offset, "", -1)
                        for each, offset in positions.items()
                    }
                )
        self.ledger.give_up(self.name, self.ledger.owned_by(self.name))
        consumer.close()

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.ledger.take(self.name, [each.partition for each in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.ledger.give_up(self.name, [each.partition for each in revoked])


class AioMember(Member, aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka."""

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            # Its default offers only round robin, which the others would have to bring, too.
            partition_assignment_strategy=[_range_assignor()],
        )
        self.consumer.subscribe(["t"], listener=self)
        await self.consumer.start()
        try:
            while not self._stopping.is_set():
                found = await self.consumer.getmany(timeout_ms=50, max_records=100)
                for key, batch in found.items():
                    for message in batch:
                        # A rebalance can come between the fetch and here.
                        if key.partition in self.ledger.owned_by(self.name):
                            self.handle(message.partition, message.offset)
            await self._hand_over(self.ledger.owned_by(self.name))
        finally:
            await self.consumer.stop()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.ledger.take(self.name, [each.partition for each in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._hand_over({each.partition for each in revoked})

    async def _hand_over(self, partitions: set[int]) -> None:
        positions = self.release(partitions)
        if positions:
            await self.consumer.commit(
                {aiokafka.TopicPartition("t", each): at for each, at in positions.items()}
            )
        self.ledger.give_up(self.name, partitions)


def _range_assignor() -> Any:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    return RangePartitionAssignor


class Flow:
    """A producer that writes to `t` all the time, evenly, until it is stopped."""

    def __init__(self, broker: Broker, partitions: int) -> None:
        self.written: Counter[tuple[int, int]] = Counter()
        self._partitions = partitions
        self._stopping = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 2}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self, count: int) -> None:
        """Writes that many messages and waits until they are there."""
        for number in range(count):
            self._produce(number % self._partitions)
            if number % 1_000 == 0:
                self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                self._produce(partition)
            self._producer.poll(0.005)

    def _produce(self, partition: int) -> None:
        self._producer.produce("t", b"x" * 20, partition=partition, callback=self._delivered)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.written[message.partition(), message.offset()] += 1


@contextlib.contextmanager
def topic_of(partitions: int, **settings: Any) -> Iterator[Broker]:
    """A broker with the topic `t`."""
    defaults = {
        "group_min_session_timeout_ms": 500,
        "group_consumer_min_session_timeout_ms": 500,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_heartbeat_interval_ms": HEARTBEAT_MS,
        "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
        "group_consumer_assignment_interval_ms": 0,
    }
    with Broker(**(defaults | settings)) as broker:
        broker.create_topic("t", partitions=partitions)
        yield broker


def commit_the_beginning(broker: Broker, partitions: int, group: str = "g") -> None:
    """Commits offset 0 everywhere, so that no member has to ask where to begin.

    librdkafka retries that question on a timer, which may outlive the assignment that it was for:
    after quick rebalances it can set a partition back that was committed in between.
    """
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 2}
    )
    places = [confluent_kafka.TopicPartition("t", index, 0) for index in range(partitions)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
