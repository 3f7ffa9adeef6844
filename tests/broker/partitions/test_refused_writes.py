"""A producer's first batch is refused, and the one sent behind it arrives: raw frames, in order."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.partitions import refused_writes
from moldau.broker.server import Broker as Server
from moldau.broker.upkeep.upkeep import Upkeep
from moldau.cluster.state.topics import PartitionState
from moldau.log.errors import StorageError
from moldau.log.truncation import restart_at, truncate_to
from moldau.log.writer import Writer
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch, now_ms, produce_values, until

OUT_OF_ORDER = Error.OUT_OF_ORDER_SEQUENCE_NUMBER
DAY_MS = 24 * 3_600_000


def numbered(
    sequence: int, *values: bytes, epoch: int = 0, producer: int = 77, **more: Any
) -> bytearray:
    return make_batch(
        *(values or (b"%d" % sequence,)),
        **{"key": b"k"} | more,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def run(broker: Broker, work: Callable[[Server], None]) -> None:
    inside(broker, work)


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
            assert (blocked.error_code, blocked.base_offset) == (OUT_OF_ORDER, -1)
        assert client.end_of("t") == 0
        assert client.produce("t", numbered(0, b"a", b"b")).base_offset == 0
        for sequence in (2, 3):
            assert client.produce("t", numbered(sequence)).base_offset == sequence
        assert client.values("t") == [b"a", b"b", b"2", b"3"]
        run(moldau_broker, lambda server: _assert_empty(server))


def _assert_empty(server: Server) -> None:
    assert len(server.partitions.refused_writes) == 0
    assert not server.partitions.refused_writes.topics


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
        assert client.produce(topic_id, numbered(1), version=13).error_code == OUT_OF_ORDER
        assert client.produce("t", numbered(1), version=9).error_code == OUT_OF_ORDER
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
        assert [_code(client) for _ in range(3)] == [OUT_OF_ORDER] * 3
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
        for index, sequence in ((0, 30), (1, 40), (2, 50)):
            behind = client.produce("wide", numbered(sequence + 1), partition=index)
            assert behind.error_code == OUT_OF_ORDER
            again = client.produce("wide", numbered(sequence), partition=index)
            assert again.error_code == 0


def _code(client: Client) -> int:
    code: int = client.receive().responses[0].partition_responses[0].error_code
    return code


def test_the_lowest_refused_sequence_counts_and_lower_ones_are_taken(client: Client) -> None:
    topic = client.create(min_insync_replicas="2")
    for sequence in (12, 10, 11):
        assert client.produce(topic, numbered(sequence)).error_code == Error.NOT_ENOUGH_REPLICAS
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(11)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(9)).base_offset == 0
    assert client.produce(topic, numbered(11)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(10)).base_offset == 1


def test_sequences_beyond_the_largest_number_come_later(client: Client) -> None:
    topic = client.create(min_insync_replicas="2")
    last = 2**31 - 1
    assert client.produce(topic, numbered(last)).error_code == Error.NOT_ENOUGH_REPLICAS
    assert client.produce(topic, numbered(0)).error_code == Error.NOT_ENOUGH_REPLICAS
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(0)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(last)).base_offset == 0
    assert client.produce(topic, numbered(0)).base_offset == 1


def test_others_are_not_held_up(client: Client) -> None:
    """Nor is anybody else's partition, producer or epoch."""
    topic = client.create(partitions=2, min_insync_replicas="2")
    assert client.produce(topic, numbered(0)).error_code == Error.NOT_ENOUGH_REPLICAS
    client.alter(topic, min_insync_replicas="1")
    assert client.produce(topic, numbered(5), partition=1).error_code == 0
    assert client.produce(topic, numbered(5, producer=78)).error_code == 0
    assert client.produce(topic, make_batch(b"x", key=b"k")).error_code == 0
    assert client.produce(topic, numbered(5)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(5, epoch=1)).error_code == 0


# A refusal that is over holds up nobody: this error on the oldest batch is fatal to librdkafka.


@pytest.fixture
def refusing(moldau_broker: Broker) -> Iterator[tuple[Broker, Client]]:
    """A broker that has refused sequence 0, and takes everything from now on."""
    with Client(moldau_broker) as client:
        client.create("t", min_insync_replicas="2")
        assert client.produce("t", numbered(0)).error_code == Error.NOT_ENOUGH_REPLICAS
        client.alter("t", min_insync_replicas="1")
        assert client.produce("t", numbered(1)).error_code == OUT_OF_ORDER
        yield moldau_broker, client


def forget_producers(server: Server) -> None:
    producers = server.partitions["t", 0].log.producers
    assert producers.expire(now_ms() + 2 * DAY_MS, DAY_MS) == [77]


@pytest.mark.parametrize("forgets", [False, True], ids=["", "forgotten"])
def test_after_retention_and_deleted_records(
    refusing: tuple[Broker, Client], forgets: bool
) -> None:
    broker, client = refusing
    for sequence in range(3):
        assert client.produce("t", numbered(sequence)).error_code == 0
    wanted = {"partition_index": 0, "offset": 3}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": "t", "partitions": [wanted]}], timeout=100)
    broker._call(_upkeep(broker).delete_expired())
    if forgets:
        run(broker, forget_producers)
    assert client.produce("t", numbered(3)).base_offset == 3


def _upkeep(broker: Broker) -> Upkeep:
    assert broker._server is not None
    return broker._server._upkeep


def test_after_a_new_topic_of_the_same_name(refusing: tuple[Broker, Client]) -> None:
    """What was written to the old one went to another leader, which this broker cannot know."""
    _, client = refusing
    client.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
    client.create("t")
    assert client.produce("t", numbered(100)).base_offset == 0


def test_after_a_topic_was_deleted_under_the_producer(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        assert client.produce("t", numbered(0)).base_offset == 0
        client.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
        for sequence in (1, 2):
            answer = client.produce("t", numbered(sequence))
            assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        client.create("t")
        assert client.produce("t", numbered(2)).error_code == OUT_OF_ORDER
        assert client.produce("t", numbered(1)).base_offset == 0
        assert client.produce("t", numbered(2)).base_offset == 1


def test_after_another_leader_has_written_it(refusing: tuple[Broker, Client]) -> None:
    broker, client = refusing

    def follow(server: Server) -> None:
        partition = server.partitions["t", 0]
        for sequence in range(3):
            batch = numbered(sequence)
            struct.pack_into(">q", batch, 0, sequence)
            partition.append_replica(memoryview(batch), sequence)

    run(broker, follow)
    assert client.produce("t", numbered(3)).base_offset == 3


@pytest.mark.moldau(producer_id_expiration_ms=1)
def test_after_another_leader_has_written_it_and_it_was_forgotten(
    refusing: tuple[Broker, Client],
) -> None:
    broker, client = refusing

    def follow(server: Server) -> None:
        server.partitions["t", 0].append_replica(memoryview(numbered(0)), 0)

    def forgets(server: Server) -> bool:
        return server.partitions["t", 0].log.producers.get(77) is None

    def is_forgotten() -> bool:
        broker._call(_upkeep(broker).delete_expired())
        return inside(broker, forgets)

    run(broker, follow)
    until(is_forgotten, "the producer to be forgotten")
    assert client.produce("t", numbered(1)).base_offset == 1


def test_after_the_refused_batch_alone_was_written_and_forgotten(
    refusing: tuple[Broker, Client],
) -> None:
    broker, client = refusing
    assert client.produce("t", numbered(0)).base_offset == 0
    run(broker, forget_producers)
    assert client.produce("t", numbered(1)).base_offset == 1


def test_after_a_leader_change_to_a_fresh_copy(refusing: tuple[Broker, Client]) -> None:
    """The records were deleted where they had been written, and so are in no copy."""
    broker, client = refusing
    run(broker, lambda server: restart_at(server.partitions["t", 0].log, 3))
    assert client.produce("t", numbered(3)).base_offset == 3


def test_after_a_cut(refusing: tuple[Broker, Client]) -> None:
    """A follower of a leader that was elected uncleanly loses what both had acknowledged."""
    broker, client = refusing
    assert client.produce("t", make_batch(b"x")).base_offset == 0

    def cut(server: Server) -> None:
        truncate_to(server.partitions["t", 0].log, 0)

    run(broker, cut)
    assert client.produce("t", numbered(3)).base_offset == 0


def test_after_an_unclean_election(refusing: tuple[Broker, Client]) -> None:
    """The leader in between took the batch and died; this broker was not in sync."""
    broker, client = refusing

    def elect(server: Server) -> None:
        partition = server.partitions["t", 0]
        epoch = partition.leader_epoch
        partition.become(PartitionState((0, 5), (5,), 5, epoch + 1))
        partition.become(PartitionState((0,), (0,), 0, epoch + 2))

    run(broker, elect)
    assert client.produce("t", numbered(3)).base_offset == 0


def test_after_a_clean_election_it_still_counts(refusing: tuple[Broker, Client]) -> None:
    """Nobody can have written it meanwhile, or this broker would have a copy."""
    broker, client = refusing

    def elect(server: Server) -> None:
        partition = server.partitions["t", 0]
        epoch = partition.leader_epoch
        partition.become(PartitionState((0, 5), (0, 5), 5, epoch + 1))
        partition.become(PartitionState((0,), (0,), 0, epoch + 2))

    run(broker, elect)
    assert client.produce("t", numbered(1)).error_code == OUT_OF_ORDER
    assert client.produce("t", numbered(0)).base_offset == 0


def test_after_a_restart_that_lost_the_snapshot(refusing: tuple[Broker, Client]) -> None:
    broker, client = refusing
    for sequence in range(3):
        assert client.produce("t", numbered(sequence)).error_code == 0
    wanted = {"partition_index": 0, "offset": 3}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": "t", "partitions": [wanted]}], timeout=100)
    folder = Path(broker.data_dir) / "t-0"
    broker.stop()
    for file in (*folder.glob("*.snapshot"), *folder.glob("*.log")):
        file.unlink()
    broker.start()
    with Client(broker) as again:
        assert again.produce("t", numbered(3)).error_code == 0


def test_two_rounds_later_it_is_forgotten(refusing: tuple[Broker, Client]) -> None:
    broker, client = refusing
    broker._call(_upkeep(broker).forget_refusals())
    assert client.produce("t", numbered(1)).error_code == OUT_OF_ORDER
    broker._call(_upkeep(broker).forget_refusals())
    assert client.produce("t", numbered(1)).base_offset == 0


def test_a_client_that_goes_on_regardless_is_believed_after_five(client: Client) -> None:
    """It cannot have had more under way when it learned that the first was refused."""
    topic = client.create(cleanup_policy="compact")
    assert client.produce(topic, numbered(0, key=None)).error_code == Error.INVALID_RECORD
    for sequence in (1, 2, 3, 4, 4, 1):
        assert client.produce(topic, numbered(sequence)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(5)).base_offset == 0
    assert client.produce(topic, numbered(6)).base_offset == 1


def test_a_client_that_is_refused_again_and_again_is_not_given_up(client: Client) -> None:
    topic = client.create(cleanup_policy="compact")
    for _ in range(4):
        assert client.produce(topic, numbered(0, key=None)).error_code == Error.INVALID_RECORD
        for sequence in (1, 2, 3, 4):
            assert client.produce(topic, numbered(sequence)).error_code == OUT_OF_ORDER
    assert client.produce(topic, numbered(0)).base_offset == 0


def test_the_memory_is_bounded(moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_writes, "MOST_REFUSALS", 50)
    with Client(moldau_broker) as client:
        for number in range(100):
            client.produce(f"missing-{number % 7}", numbered(0, producer=number))
            client.produce(uuid.UUID(int=number + 1), numbered(0, producer=number), version=13)
        client.produce("x" * 300, numbered(0))
        client.produce("missing", make_batch(b"no producer"))
        assert inside(moldau_broker, lambda server: len(server.partitions.refused_writes)) == 50
        client.produce("t", numbered(0))
        client.create("t")
        assert client.produce("t", numbered(1)).error_code == OUT_OF_ORDER
        for number in range(7):
            client.create(f"missing-{number}")
            topics = [{"name": f"missing-{number}", "topic_id": None}]
            client.ask(Api.DELETE_TOPICS, topics=topics, timeout=5000)
        broker_rounds = _upkeep(moldau_broker)
        moldau_broker._call(broker_rounds.forget_refusals())
        moldau_broker._call(broker_rounds.forget_refusals())
        run(moldau_broker, _assert_empty)
