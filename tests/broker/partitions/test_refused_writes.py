"""A producer's first batch is refused, and the one sent behind it arrives: raw frames, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.broker.server import Broker as Server
from moldau.log.errors import StorageError
from moldau.log.writer import Writer
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.partitions.refusals import (
    DAY_MS,
    OUT_OF_ORDER,
    TOO_FEW,
    assert_empty,
    numbered,
    run,
)
from tests.broker.wire_client import Client, make_batch, now_ms, produce_values

# Why a batch may be refused. Each gives a broker that refuses the first one and, once left, takes
# what comes, and says with what.


@contextmanager
def another_leads(broker: Broker, client: Client) -> Iterator[Error]:
    client.create("t")
    run(broker, lambda server: server.replicas.fence(True))
    yield Error.NOT_LEADER_OR_FOLLOWER
    run(broker, lambda server: server.replicas.fence(False))


@contextmanager
def no_such_topic(broker: Broker, client: Client) -> Iterator[Error]:
    yield Error.UNKNOWN_TOPIC_OR_PARTITION
    client.create("t")


@contextmanager
def no_such_partition(broker: Broker, client: Client) -> Iterator[Error]:
    client.create("t")
    client.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
    yield Error.UNKNOWN_TOPIC_OR_PARTITION
    client.create("t")


@contextmanager
def too_few_in_sync(broker: Broker, client: Client) -> Iterator[Error]:
    client.create("t", min_insync_replicas="2")
    yield Error.NOT_ENOUGH_REPLICAS
    client.alter("t", min_insync_replicas="1")


@contextmanager
def a_full_disk(broker: Broker, client: Client) -> Iterator[Error]:
    client.create("t")
    with pytest.MonkeyPatch.context() as patch:

        def refuse(writer: Writer) -> None:
            raise StorageError(writer.segments.folder, "no space left on device")

        patch.setattr(Writer, "write", refuse)
        yield Error.KAFKA_STORAGE_ERROR


@contextmanager
def no_room_for_a_segment(broker: Broker, client: Client) -> Iterator[Error]:
    client.create("t")
    with pytest.MonkeyPatch.context() as patch:

        def refuse(writer: Writer, now_ms: int) -> None:
            raise StorageError(writer.segments.folder, "no space left on device")

        patch.setattr(Writer, "activate", refuse)
        yield Error.KAFKA_STORAGE_ERROR


CAUSES = [
    another_leads,
    no_such_topic,
    no_such_partition,
    too_few_in_sync,
    a_full_disk,
    no_room_for_a_segment,
]


@pytest.mark.parametrize("cause", CAUSES)
def test_what_follows_a_refused_batch_waits_for_it(
    moldau_broker: Broker, cause: Callable[[Broker, Client], Any]
) -> None:
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        with cause(moldau_broker, other) as error:
            assert client.produce("t", numbered(0, b"a", b"b")).error_code == error
        for sequence in (2, 3):
            blocked = client.produce("t", numbered(sequence))
            assert (blocked.error_code, blocked.base_offset) == (error, -1)
        assert client.end_of("t") == 0
        assert client.produce("t", numbered(0, b"a", b"b")).base_offset == 0
        for sequence in (2, 3):
            assert client.produce("t", numbered(sequence)).base_offset == sequence
        assert client.values("t") == [b"a", b"b", b"2", b"3"]
        run(moldau_broker, lambda server: assert_empty(server))


def bad_crc() -> bytearray:
    batch = numbered(0)
    batch[-1] ^= 1
    return batch


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda: numbered(0, key=None), Error.INVALID_RECORD),
        (lambda: numbered(0)[:-1], Error.INVALID_RECORD),
        (bad_crc, Error.CORRUPT_MESSAGE),
        (lambda: numbered(0, bytes(2000)), Error.MESSAGE_TOO_LARGE),
        (lambda: numbered(0, timestamp=now_ms() + DAY_MS), Error.INVALID_TIMESTAMP),
    ],
    ids=["no key", "cut short", "corrupt", "too large", "from the future"],
)
def test_what_follows_a_bad_batch_waits_for_a_good_one(
    client: Client, bad: Callable[[], bytearray], error: Error
) -> None:
    topic = client.create(cleanup_policy="compact", max_message_bytes="1000")
    assert client.produce(topic, bad()).error_code == error
    assert client.produce(topic, numbered(1)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(0)).base_offset == 0
    assert client.produce(topic, numbered(1)).base_offset == 1


def test_a_topic_that_is_not_known_by_its_id_yet(moldau_broker: Broker) -> None:
    """The client has heard of the topic from another broker."""
    with Client(moldau_broker) as client:
        client.create("t")
        topic_id = client.topic_id("t")

        def hide(server: Server) -> None:
            server.hidden = (  # type: ignore[attr-defined]
                server.state.topics_by_id.pop(topic_id),
                server.partitions.pop(("t", 0)),
            )

        def show(server: Server) -> None:
            topic, server.partitions["t", 0] = server.hidden  # type: ignore[attr-defined]
            server.state.topics_by_id[topic_id] = topic

        run(moldau_broker, hide)
        answer = client.produce(topic_id, numbered(0), version=13)
        assert answer.error_code == Error.UNKNOWN_TOPIC_ID
        run(moldau_broker, show)
        assert (
            client.produce(topic_id, numbered(1), version=13).error_code == Error.UNKNOWN_TOPIC_ID
        )
        assert client.produce("t", numbered(1), version=9).error_code == Error.UNKNOWN_TOPIC_ID
        assert client.produce(topic_id, numbered(0), version=13).base_offset == 0


def test_five_batches_under_way_of_which_the_first_is_refused_alone(moldau_broker: Broker) -> None:
    """The worst case: the disk refuses one receive, and takes the next."""
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        frames = [
            client.frame(Api.PRODUCE, 9, **produce_values({"t": {0: numbered(sequence)}}))
            for sequence in range(5)
        ]
        with a_full_disk(moldau_broker, other):
            client.send_bytes(frames[0] + frames[1] + frames[2][:50])
            codes = [_code(client) for _ in range(2)]
        assert codes == [Error.KAFKA_STORAGE_ERROR] * 2
        client.send_bytes(frames[2][50:] + frames[3] + frames[4])
        assert [_code(client) for _ in range(3)] == [Error.KAFKA_STORAGE_ERROR] * 3
        assert other.end_of("t") == 0
        for sequence in range(5):
            assert client.produce("t", numbered(sequence)).base_offset == sequence
        assert other.values("t") == [b"0", b"1", b"2", b"3", b"4"]


def test_of_a_request_whose_write_fails_each_partition_remembers_its_own_batch(
    moldau_broker: Broker,
) -> None:
    """One partition is refused before the log is looked at; the disk then refuses the others."""
    moldau_broker.create_topic("wide", partitions=3)
    corrupt = numbered(40)
    corrupt[-1] ^= 1
    batches = {0: numbered(30), 1: corrupt, 2: numbered(50)}
    with Client(moldau_broker) as client, Client(moldau_broker) as other:
        with a_full_disk(moldau_broker, other):
            answer = client.ask(Api.PRODUCE, 9, **produce_values({"wide": batches}))
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        refused = Error.KAFKA_STORAGE_ERROR
        assert codes == [refused, Error.CORRUPT_MESSAGE, refused]
        for index, sequence, error in ((0, 30, refused), (1, 40, OUT_OF_ORDER), (2, 50, refused)):
            behind = client.produce("wide", numbered(sequence + 1), partition=index)
            assert behind.error_code == error
            again = client.produce("wide", numbered(sequence), partition=index)
            assert again.error_code == 0


def _code(client: Client) -> int:
    code: int = client.receive().responses[0].partition_responses[0].error_code
    return code


def test_the_lowest_refused_sequence_counts_and_lower_ones_are_taken(client: Client) -> None:
    topic = client.create(min_insync_replicas="2")
    for sequence in (12, 10, 11):
        assert client.produce(topic, numbered(sequence)).error_code == TOO_FEW
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(11)).error_code == TOO_FEW
    assert client.produce(topic, numbered(9)).base_offset == 0
    assert client.produce(topic, numbered(11)).error_code == TOO_FEW
    assert client.produce(topic, numbered(10)).base_offset == 1


def test_sequences_beyond_the_largest_number_come_later(client: Client) -> None:
    topic = client.create(min_insync_replicas="2")
    last = 2**31 - 1
    assert client.produce(topic, numbered(last)).error_code == TOO_FEW
    assert client.produce(topic, numbered(0)).error_code == TOO_FEW
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(0)).error_code == TOO_FEW
    assert client.produce(topic, numbered(last)).base_offset == 0
    assert client.produce(topic, numbered(0)).base_offset == 1


def test_others_are_not_held_up(client: Client) -> None:
    """Nor is anybody else's partition, producer or epoch."""
    topic = client.create(partitions=2, min_insync_replicas="2")
    assert client.produce(topic, numbered(0)).error_code == TOO_FEW
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(5), partition=1).error_code == 0
    assert client.produce(topic, numbered(5, producer=78)).error_code == 0
    assert client.produce(topic, make_batch(b"x", key=b"k")).error_code == 0
    assert client.produce(topic, numbered(5)).error_code == TOO_FEW
    assert client.produce(topic, numbered(5, epoch=1)).error_code == 0
