"""ListOffsets over the wire: every version, and every timestamp that stands for a place."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.server import Broker as Server
from moldau.records.batch import read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, assemble, build_batch
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, append_open, inside, make_batch, now_ms, versions

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


def ask(
    client: Client,
    topic: str,
    timestamp: int,
    *,
    version: int | None = None,
    partition: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
) -> Any:
    """The answer for one partition."""
    wanted = {
        "partition_index": partition,
        "timestamp": timestamp,
        "current_leader_epoch": epoch,
    }
    answer = client.ask(
        Api.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": [wanted]}],
    )
    return answer.topics[0].partitions[0]


def place(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.offset, answer.timestamp


@pytest.fixture
def times(client: Client) -> tuple[str, int]:
    """A topic with records at start, +10, +20 | +30, +25 | +40, and the start."""
    start = now_ms() - 1000
    topic = client.create()
    for codec, stamps in ((Codec.NONE, (0, 10, 20)), (Codec.ZSTD, (30, 25)), (Codec.GZIP, (40,))):
        records = [Record(at, start + each, b"k", b"v") for at, each in enumerate(stamps)]
        assert client.produce(topic, build_batch(records, codec)).error_code == 0
    return topic, start


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_every_version_finds_both_ends_and_times(
    client: Client, times: tuple[str, int], version: int
) -> None:
    topic, start = times
    assert place(ask(client, topic, EARLIEST, version=version)) == (0, 0, -1)
    assert place(ask(client, topic, LATEST, version=version)) == (0, 6, -1)
    for seek, found in ((0, 0), (1, 1), (10, 1), (11, 2), (21, 3), (26, 3), (31, 5), (40, 5)):
        answer = ask(client, topic, start + seek, version=version)
        assert (answer.error_code, answer.offset) == (0, found), seek
    assert place(ask(client, topic, start + 26, version=version)) == (0, 3, start + 30)
    assert place(ask(client, topic, start + 41, version=version)) == (0, -1, -1)
    if version >= 4:
        assert ask(client, topic, LATEST, version=version).leader_epoch == 0


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_places_that_came_later_need_their_version(
    client: Client, times: tuple[str, int], version: int
) -> None:
    topic, start = times
    for first, timestamp, expected in (
        (7, MAX_TIMESTAMP, (0, 5, start + 40)),
        (8, EARLIEST_LOCAL, (0, 0, -1)),
        (9, LATEST_TIERED, (0, -1, -1)),
        (11, PENDING_UPLOAD, (0, -1, -1)),
    ):
        answer = ask(client, topic, timestamp, version=version)
        if version >= first:
            assert place(answer) == expected
        else:
            assert answer.error_code == Error.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_places_that_nobody_knows_need_another_version(client: Client, version: int) -> None:
    topic = client.create()
    for timestamp in (-7, -(2**63)):
        answer = ask(client, topic, timestamp, version=version)
        assert place(answer) == (Error.UNSUPPORTED_VERSION, -1, -1)


def test_a_partition_that_is_asked_for_twice_is_refused_once(client: Client) -> None:
    topic = client.create(partitions=2)
    wanted = [
        {"partition_index": index, "timestamp": LATEST, "current_leader_epoch": -1}
        for index in (1, 0, 1)
    ]
    answer = client.ask(
        Api.LIST_OFFSETS,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": wanted}],
    )
    found = [(each.partition_index, *place(each)) for each in answer.topics[0].partitions]
    assert found == [(1, Error.INVALID_REQUEST, -1, -1), (0, 0, 0, -1)]


def test_the_largest_timestamp_is_found_inside_of_a_batch(client: Client) -> None:
    topic = client.create()
    start = now_ms() - 1000
    for stamps in ((5, 50, 7), (6,)):
        records = [Record(at, start + each, None, b"v") for at, each in enumerate(stamps)]
        client.produce(topic, build_batch(records, Codec.LZ4))
    assert place(ask(client, topic, MAX_TIMESTAMP)) == (0, 1, start + 50)


def test_an_empty_partition_begins_and_ends_at_0(client: Client) -> None:
    topic = client.create()
    assert place(ask(client, topic, EARLIEST)) == (0, 0, -1)
    assert place(ask(client, topic, LATEST)) == (0, 0, -1)
    assert place(ask(client, topic, MAX_TIMESTAMP)) == (0, -1, -1)
    assert place(ask(client, topic, 0)) == (0, -1, -1)


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_every_version_says_what_is_unknown(client: Client, version: int) -> None:
    topic = client.create()
    for name, partition in (("nobody-made-this", 0), (topic, 1), (topic, -1)):
        answer = ask(client, name, LATEST, version=version, partition=partition)
        assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.offset == -1


@pytest.mark.parametrize("version", range(4, versions(Api.LIST_OFFSETS).stop))
def test_a_wrong_leader_epoch_is_fenced(client: Client, version: int) -> None:
    topic = client.create()
    assert ask(client, topic, LATEST, version=version, epoch=0).error_code == 0
    ahead = ask(client, topic, LATEST, version=version, epoch=1)
    assert ahead.error_code == Error.UNKNOWN_LEADER_EPOCH


def test_an_old_leader_epoch_and_a_follower_are_told(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:

        def change(server: Server) -> None:
            server.partitions["t", 0].leader_epoch = 3

        inside(moldau_broker, change)
        assert ask(client, "t", LATEST, epoch=2).error_code == Error.FENCED_LEADER_EPOCH
        assert ask(client, "t", LATEST, epoch=3).leader_epoch == 3

        def resign(server: Server) -> None:
            server.partitions["t", 0].is_leader = False

        inside(moldau_broker, resign)
        assert ask(client, "t", LATEST).error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_the_end_for_committed_readers_is_before_an_open_transaction(
    client: Client, moldau_session_broker: Broker
) -> None:
    topic = client.create()
    client.produce(topic, make_batch(b"plain"))
    append_open(moldau_session_broker, topic, b"open")
    assert ask(client, topic, LATEST).offset == 2
    assert ask(client, topic, LATEST, isolation_level=1).offset == 1


def test_a_time_is_found_after_the_records_before_it_were_deleted(
    client: Client, times: tuple[str, int]
) -> None:
    topic, start = times
    wanted = {"partition_index": 0, "offset": 4}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": topic, "partitions": [wanted]}], timeout=100)
    assert place(ask(client, topic, EARLIEST)) == (0, 4, -1)
    assert place(ask(client, topic, start)) == (0, 4, start + 25)


def test_nonsense_under_a_valid_crc_is_nobody_elses_problem(client: Client) -> None:
    """Batches are not decoded when they come in; whoever looks into them later must not stumble."""
    topic = client.create()
    start = now_ms()
    good = make_batch(b"good", timestamp=start)
    header_and_nonsense = _with_body(good, b"\xff" * 40)
    assert client.produce(topic, header_and_nonsense).error_code == 0
    assert client.produce(topic, make_batch(b"later", timestamp=start + 5)).error_code == 0
    assert place(ask(client, topic, start)) == (0, 1, start + 5)
    assert ask(client, topic, MAX_TIMESTAMP).error_code == 0


def _with_body(batch: bytearray, body: bytes) -> bytearray:

    return assemble(read_header(batch), body)
