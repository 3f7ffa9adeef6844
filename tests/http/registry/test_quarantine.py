"""Records that are set aside in a transaction: part of it like the batch that they came in.

The worst that can happen in between is played by holding a request at a certain step, while other
connections of the same producer do what they like.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from moldau.broker.server import Broker as Server
from moldau.schemas.header import pack_header
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV1, TV2, Producer
from tests.broker.wire_client import Client, inside, make_batch, produce_values
from tests.spark.topics import read_by_librdkafka

pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")

LATE = (Error.INVALID_TXN_STATE, Error.INVALID_PRODUCER_EPOCH)

# The first process on a machine compiles.
pytestmark = pytest.mark.timeout(400)


class Topic:
    """A topic with a check and a quarantine, and what is in both."""

    def __init__(self, broker: Broker, client: SchemaRegistryClient) -> None:
        self.broker = broker
        with Client(broker) as asker:
            self.aside = asker.create()
            self.name = asker.create(
                moldau_value_schema_validation="true",
                moldau_schema_validation_quarantine=self.aside,
            )
        known = client.register_schema(f"{self.name}-value", Schema('"string"', "AVRO"))
        self.fine = pack_header(known) + b"\x02a"

    def committed(self) -> tuple[list[int], list[bytes]]:
        """The offsets of what is read in the topic, and the values in its quarantine."""
        taken = read_by_librdkafka(self.broker, self.name)
        letters = read_by_librdkafka(self.broker, self.aside)
        return [row["offset"] for row in taken], [row["value"] for row in letters]

    def open(self) -> list[int]:
        """How many transactions are open in the logs of both."""

        def count(server: Server) -> list[int]:
            logs = [server.partitions[each, 0].log for each in (self.name, self.aside)]
            return [len(log.producers.open) for log in logs]

        return inside(self.broker, count)


@pytest.fixture
def topic(registry_broker: Broker, client: SchemaRegistryClient) -> Topic:
    return Topic(registry_broker, client)


@pytest.fixture(params=[TV1, TV2])
def producer(request: pytest.FixtureRequest, registry_broker: Broker) -> Iterator[Producer]:
    producer = Producer(registry_broker, request.param).init()
    yield producer
    producer.client.close()


class Hold:
    """Holds the next call of an async function of the broker, before it or after it."""

    def __init__(self, broker: Broker, place: Callable[[Server], Any], name: str) -> None:
        self._broker = broker
        self._place, self._name = place, name
        self.reached = threading.Event()
        self._go: asyncio.Event | None = None

    def __call__(self, *, after: bool, when: Callable[..., bool] = lambda *a, **k: True) -> Hold:
        def put(server: Server) -> None:
            owner = self._place(server)
            real: Callable[..., Awaitable[Any]] = getattr(owner, self._name)
            go = self._go = asyncio.Event()

            async def held(*args: Any, **more: Any) -> Any:
                if not when(*args, **more):
                    return await real(*args, **more)
                setattr(owner, self._name, real)
                if not after:
                    self.reached.set()
                    await go.wait()
                answer = await real(*args, **more)
                if after:
                    self.reached.set()
                    await go.wait()
                return answer

            setattr(owner, self._name, held)

        inside(self._broker, put)
        return self

    def until_reached(self) -> None:
        assert self.reached.wait(60)

    def release(self) -> None:
        go = self._go
        assert go is not None
        inside(self._broker, lambda _: go.set())


def hold_join(broker: Broker, *, after: bool) -> Hold:
    """Hold the request at which the coordinator adds the quarantine to the transaction."""
    hold = Hold(broker, lambda server: server.partitions.verifier, "verify")
    return hold(after=after, when=lambda *_, adds, **__: adds)


def hold_write(broker: Broker) -> Hold:
    """Hold the request when its records have been set aside, before its batch is appended."""
    hold = Hold(broker, lambda server: server.partitions.door._quarantine, "write")  # type: ignore[union-attr]
    return hold(after=True)


def send(producer: Producer, topic: str, *values: bytes) -> None:
    """Send what `ask_produce` sends, without waiting for the answer."""
    batch = make_batch(
        *values,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequences.get((topic, 0), 0),
        is_transactional=True,
    )
    data = produce_values({topic: {0: batch}}) | {"transactional_id": producer.id}
    producer.client.send(Api.PRODUCE, 12 if producer.dialect == TV2 else 10, **data)


def error_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_covers_the_batch_and_what_was_set_aside_of_it(
    topic: Topic, producer: Producer, commits: bool
) -> None:
    expected: tuple[list[int], list[bytes]] = ([], [])
    for number in range(2):
        first = 6 * number
        producer.produce(topic.name, topic.fine, b"bad 1", topic.fine)
        # Nothing is left of this one.
        producer.produce(topic.name, b"bad 2")
        producer.produce(topic.name, topic.fine)
        assert topic.committed() == expected
        assert topic.open() == [1, 1]
        producer.end(commits=commits)
        until(lambda: topic.open() == [0, 0], "the end of the transaction")
        if commits:
            expected[0].extend([first, first + 2, first + 4])
            expected[1].extend([b"bad 1", b"bad 2"])
        assert topic.committed() == expected


def test_a_batch_that_is_sent_again_after_its_answer_was_lost_is_set_aside_once(
    topic: Topic, producer: Producer
) -> None:
    producer.produce(topic.name, topic.fine, b"bad")
    producer.sequences.clear()
    assert producer.ask_produce(topic.name, topic.fine, b"bad").error_code == 0
    producer.end(commits=True)
    until(lambda: topic.open() == [0, 0], "the end of the transaction")
    assert topic.committed() == ([0], [b"bad"])


@pytest.mark.parametrize("after", [False, True])
def test_nothing_is_set_aside_of_a_batch_whose_transaction_ends_meanwhile(
    topic: Topic, producer: Producer, registry_broker: Broker, after: bool
) -> None:
    """The producer aborts on another connection, before or after the coordinator is asked."""
    if producer.dialect == TV1:
        assert producer.ask_add((topic.name, 0)) == [0]
    else:
        # The first write of a transaction adds its partition; this one is held at the second.
        producer.produce(topic.name, topic.fine)
    held = hold_join(registry_broker, after=after)
    send(producer, topic.name, b"bad")
    held.until_reached()
    late, producer.client = producer.client, Client(registry_broker)
    producer.end(commits=False)
    producer.until("CompleteAbort")
    held.release()
    assert error_of(late.receive()) in LATE
    late.close()
    # A reader of everything finds nothing but a marker, where there is one.
    with Client(registry_broker) as reader:
        answer = reader.fetch(topic.aside, 0)
        assert b"bad" not in (answer.records or b"")
    producer.produce(topic.name, topic.fine, b"worse")
    producer.end(commits=True)
    until(lambda: topic.open() == [0, 0], "the end of the transaction")
    assert topic.committed()[1] == [b"worse"]


def test_what_was_set_aside_goes_with_the_transaction_of_a_batch_that_is_refused(
    topic: Topic, producer: Producer, registry_broker: Broker
) -> None:
    """Another producer with the same id comes after the one and before the other is written."""
    if producer.dialect == TV1:
        assert producer.ask_add((topic.name, 0)) == [0]
    held = hold_write(registry_broker)
    send(producer, topic.name, topic.fine, b"bad")
    held.until_reached()
    assert topic.open() == [0, 1]
    other = Producer(registry_broker, producer.dialect, producer.id).init()
    until(lambda: topic.open() == [0, 0], "the end of the transaction")
    held.release()
    assert error_of(producer.client.receive()) in LATE
    assert topic.committed() == ([], [])
    other.produce(topic.name, topic.fine, b"worse")
    other.end(commits=True)
    other.client.close()
    until(lambda: topic.open() == [0, 0], "the end of the transaction")
    assert topic.committed()[1] == [b"worse"]


@pytest.mark.slow
@pytest.mark.parametrize("commits", [True, False])
def test_a_crash_between_the_two_leaves_the_transaction_open_to_either_end(commits: bool) -> None:
    with Broker(http_listen="127.0.0.1:0") as broker:
        with SchemaRegistryClient({"url": broker.http_url}) as client:
            topic = Topic(broker, client)
        producer = Producer(broker, TV1).init()
        assert producer.ask_add((topic.name, 0)) == [0]
        held = hold_write(broker)
        send(producer, topic.name, topic.fine, b"bad")
        held.until_reached()
        assert topic.open() == [0, 1]
        producer.client.close()
        broker.stop()
        broker.start()
        assert topic.open() == [0, 1]
        producer.client = Client(broker)
        until(producer.state, "transactions to be read back")
        if commits:
            # The client heard nothing of it, so it sends the batch again.
            assert producer.ask_produce(topic.name, topic.fine, b"bad").error_code == 0
        producer.end(commits=commits)
        until(lambda: topic.open() == [0, 0], "the end of the transaction")
        assert topic.committed() == (([0], [b"bad", b"bad"]) if commits else ([], []))
        producer.client.close()


def test_a_record_that_comes_after_the_end_of_its_transaction_is_refused(
    topic: Topic, producer: Producer
) -> None:
    """A marker has overtaken what another broker sends to the leader of the quarantine."""
    assert producer.ask_unsequenced(topic.aside, b"bad").error_code == Error.TRANSACTION_ABORTABLE
    producer.produce(topic.name, topic.fine, b"bad")
    assert producer.ask_unsequenced(topic.aside, b"bad").error_code == 0
    late = producer.epoch
    producer.end(commits=True)
    producer.until("CompleteCommit")
    producer.epoch, now = late, producer.epoch
    assert producer.ask_unsequenced(topic.aside, b"bad").error_code in (
        Error.TRANSACTION_ABORTABLE,
        Error.INVALID_PRODUCER_EPOCH,
    )
    producer.epoch = now
    assert topic.open() == [0, 0]
    assert topic.committed()[1] == [b"bad", b"bad"]


def test_markers_are_not_taken_for_records_that_were_set_aside(
    topic: Topic, producer: Producer
) -> None:
    producer.produce(topic.name, topic.fine, b"bad")
    answer = producer.ask_unsequenced(topic.aside, b"bad", is_control=True)
    assert answer.error_code == Error.INVALID_RECORD
    producer.end(commits=False)


def test_what_is_set_aside_leaves_the_producers_own_sequences_as_they_are(
    topic: Topic, producer: Producer
) -> None:
    producer.produce(topic.aside, b"own 1", b"own 2")
    producer.produce(topic.name, topic.fine, b"bad")
    producer.produce(topic.aside, b"own 3")
    producer.end(commits=True)
    until(lambda: topic.open() == [0, 0], "the end of the transaction")
    assert topic.committed()[1] == [b"own 1", b"own 2", b"bad", b"own 3"]
