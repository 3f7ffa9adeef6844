"""Produce over the wire: every version, every kind of acks, and what is refused."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from moldau.cluster.state.internal_topics import INTERNAL_TOPICS, InternalTopic
from moldau.records.batch import read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.produce import _cached_topic_head
from tests.broker.wire_client import (
    Client,
    fresh_name,
    make_batch,
    now_ms,
    produce_values,
    read_records,
    versions,
)


def key_of(client: Client, topic: str, version: int) -> str | UUID:
    """How a version of Produce names a topic."""
    return client.topic_id(topic) if version >= 13 else topic


@pytest.mark.parametrize("version", versions(Api.PRODUCE))
def test_every_version_appends(client: Client, version: int) -> None:
    topic = client.create()
    key = key_of(client, topic, version)
    first = client.produce(key, make_batch(b"one", b"two"), version=version)
    second = client.produce(key, make_batch(b"three"), version=version, acks=1)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert first.log_append_time is None
    if version >= 5:
        assert first.log_start_offset == 0
    assert client.values(topic) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("version", versions(Api.PRODUCE))
def test_every_version_says_that_a_topic_is_unknown(client: Client, version: int) -> None:
    key = uuid4() if version >= 13 else "nobody-made-this"
    answer = client.produce(key, make_batch(b"x"), version=version)
    assert answer.error_code == (
        Error.UNKNOWN_TOPIC_ID if version >= 13 else Error.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert answer.base_offset == -1


def test_a_partition_beyond_the_last_is_unknown(client: Client) -> None:
    topic = client.create(partitions=2)
    for partition in (2, -1, 2**31 - 1):
        for key, version in ((topic, 9), (client.topic_id(topic), 13)):
            answer = client.produce(key, make_batch(b"x"), partition=partition, version=version)
            assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_no_topic_has_the_zero_id(client: Client) -> None:
    answer = client.produce(UUID(int=0), make_batch(b"x"), version=13)
    assert answer.error_code == Error.UNKNOWN_TOPIC_ID


def test_each_partition_of_a_request_has_an_answer_of_its_own(client: Client) -> None:
    topic, other = client.create(partitions=3), client.create()
    wanted = {
        topic: {0: make_batch(b"a"), 2: make_batch(b"b", b"c"), 7: make_batch(b"d")},
        other: {0: make_batch(b"e")},
    }
    answer = client.ask(Api.PRODUCE, 9, **produce_values(wanted))
    assert [
        (topic.name, each.index, each.error_code, each.base_offset)
        for topic in answer.responses
        for each in topic.partition_responses
    ] == [
        (topic, 0, 0, 0),
        (topic, 2, 0, 0),
        (topic, 7, Error.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (other, 0, 0, 0),
    ]
    assert client.values(topic, 2) == [b"b", b"c"]
    assert client.end_of(topic, 1) == 0


def test_a_partition_named_twice_is_appended_to_twice(client: Client) -> None:
    topic = client.create()
    data = [{"index": 0, "records": bytes(make_batch(value))} for value in (b"1", b"2")]
    answer = client.ask(
        Api.PRODUCE,
        9,
        acks=-1,
        timeout=100,
        topic_data=[{"name": topic, "partition_data": data}],
    )
    assert [each.base_offset for each in answer.responses[0].partition_responses] == [0, 1]


def test_without_acks_nothing_is_answered_and_the_next_request_is(client: Client) -> None:
    topic = client.create()
    key = client.topic_id(topic)
    for version in versions(Api.PRODUCE):
        values = produce_values({(key if version >= 13 else topic): {0: make_batch(b"x")}}, acks=0)
        client.send_bytes(client.frame(Api.PRODUCE, version, **values))
        client._asked.pop()
    assert client.end_of(topic) == len(versions(Api.PRODUCE))


def test_an_error_without_acks_closes_the_connection(client: Client) -> None:
    client.send_produce("nobody-made-this-either", make_batch(b"x"), acks=0)
    assert client.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 32767, -32768])
def test_other_acks_are_refused(client: Client, acks: int) -> None:
    topic = client.create()
    answer = client.produce(topic, make_batch(b"x"), acks=acks)
    assert answer.error_code == Error.INVALID_REQUIRED_ACKS
    assert client.end_of(topic) == 0


def test_too_few_replicas_in_sync_are_an_error_for_acks_all_only(client: Client) -> None:
    topic = client.create(min_insync_replicas="2")
    assert client.produce(topic, make_batch(b"x"), acks=-1).error_code == Error.NOT_ENOUGH_REPLICAS
    assert client.produce(topic, make_batch(b"x"), acks=1).error_code == 0
    # It is there, and not shown before enough of them have it.
    shown = client.fetch(topic, 0)
    assert (shown.high_watermark, bytes(shown.records)) == (0, b"")


def test_a_minimum_above_the_number_of_replicas_means_all_of_them(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", min_insync_replicas=2)
    with Client(moldau_broker) as client:
        assert client.produce("t", make_batch(b"x"), acks=-1).error_code == 0
        assert client.produce("t", make_batch(b"y"), acks=1).error_code == 0
        assert client.values("t") == [b"x", b"y"]


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("batch", [None, b""], ids=["null", "empty"])
def test_no_records_are_invalid(client: Client, batch: bytes | None, version: int) -> None:
    topic = client.create()
    answer = client.produce(key_of(client, topic, version), batch, version=version)
    assert answer.error_code == Error.INVALID_RECORD
    if version >= 8:
        assert "no records" in answer.error_message


def test_a_refusal_says_why_from_version_8_on(client: Client) -> None:
    topic = client.create(max_message_bytes="200")
    for version in (7, 8, 9, 13):
        key = key_of(client, topic, version)
        answer = client.produce(key, make_batch(bytes(300)), version=version)
        assert answer.error_code == Error.MESSAGE_TOO_LARGE
        if version >= 8:
            assert "200" in answer.error_message
            assert answer.record_errors == ()


@pytest.mark.parametrize("topic", INTERNAL_TOPICS.values(), ids=lambda topic: topic.name)
def test_internal_topics_take_no_records_from_clients(
    moldau_broker: Broker, topic: InternalTopic
) -> None:
    moldau_broker.create_topic(topic.name)
    with Client(moldau_broker) as client:
        answer = client.produce(topic.name, make_batch(b"x"))
        assert answer.error_code == Error.INVALID_TOPIC_EXCEPTION
        assert f"only the {topic.owner} may write" in answer.error_message


def test_zstd_needs_version_7(client: Client) -> None:
    topic = client.create()
    batch = make_batch(b"x" * 100, codec=Codec.ZSTD)
    for version in (3, 6):
        answer = client.produce(topic, batch, version=version)
        assert answer.error_code == Error.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce(topic, batch, version=7).error_code == 0
    gzip = make_batch(b"x" * 100, codec=Codec.GZIP)
    assert client.produce(topic, gzip, version=3).error_code == 0


@pytest.mark.parametrize("version", versions(Api.PRODUCE))
def test_transactional_batches_are_refused_and_plain_ones_with_an_id_taken(
    client: Client, version: int
) -> None:
    topic = client.create()
    client.ask(Api.FIND_COORDINATOR, 1, key="someone", key_type=1)
    open_batch = make_batch(
        b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for transactional_id, batch, code in (
        (None, open_batch, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("someone", open_batch, Error.INVALID_PRODUCER_ID_MAPPING),
        ("someone", make_batch(b"plain"), Error.NONE),
    ):
        values = produce_values({key_of(client, topic, version): {0: batch}})
        answer = client.ask(Api.PRODUCE, version, **values, transactional_id=transactional_id)
        result = answer.responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (code, -1 if code else 0)
        if version >= 5:
            assert result.log_start_offset == (-1 if code else 0)
    answer = client.fetch(topic, 0, isolation_level=1)
    assert (answer.high_watermark, answer.last_stable_offset) == (1, 1)


def test_a_refusal_by_the_log_says_where_the_log_begins(client: Client) -> None:
    topic = client.create(cleanup_policy="compact,delete", max_message_bytes="500")
    keyed = make_batch(b"x", key=b"k")
    client.produce(topic, keyed)
    client.produce(topic, keyed)
    wanted = {"partition_index": 0, "offset": 1}
    client.ask(Api.DELETE_RECORDS, topics=[{"name": topic, "partitions": [wanted]}], timeout=100)
    short, long, magic, corrupt = (bytearray(keyed) for _ in range(4))
    long += keyed
    magic[16], corrupt[-1] = 0, corrupt[-1] ^ 1
    unknown = bytearray(keyed)
    unknown[16] = 3
    for batch, code, log_start in (
        (make_batch(b"no key"), Error.INVALID_RECORD, 1),
        (numbered(-1), Error.INVALID_RECORD, 1),
        (make_batch(b"x", key=b"k", timestamp=now_ms() + 10**8), Error.INVALID_TIMESTAMP, 1),
        (short[:-1], Error.INVALID_RECORD, -1),
        (short[:61], Error.INVALID_RECORD, -1),
        (short[:16], Error.INVALID_RECORD, -1),
        (long, Error.INVALID_RECORD, -1),
        (magic, Error.INVALID_RECORD, -1),
        (unknown, Error.CORRUPT_MESSAGE, -1),
        (corrupt, Error.CORRUPT_MESSAGE, -1),
        (make_batch(bytes(600), key=b"k"), Error.MESSAGE_TOO_LARGE, -1),
    ):
        answer = client.produce(topic, batch)
        found = (answer.error_code, answer.base_offset, answer.log_start_offset)
        assert found == (code, -1, log_start), bytes(batch)


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_kept_as_they_came(client: Client, codec: Codec) -> None:
    topic = client.create()
    batch = make_batch(*(b"value" * 20 for _ in range(50)), codec=codec)
    assert client.produce(topic, batch).error_code == 0
    kept = client.fetch(topic, 0).records
    assert kept[16:] == batch[16:]
    assert len(read_records(kept)) == 50


def test_append_time_is_the_brokers(client: Client) -> None:
    topic = client.create(message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = client.produce(topic, make_batch(b"x", timestamp=5))
    assert before <= answer.log_append_time.timestamp() * 1000 + 1 <= now_ms() + 2
    (record,) = read_records(client.fetch(topic, 0).records)
    assert before <= record.timestamp <= now_ms()


def test_timestamps_outside_of_what_the_topic_allows_are_invalid(client: Client) -> None:
    topic = client.create(message_timestamp_before_max_ms="60000")
    for timestamp in (5, now_ms() - 120_000, now_ms() + 7_200_000):
        answer = client.produce(topic, make_batch(b"x", timestamp=timestamp))
        assert answer.error_code == Error.INVALID_TIMESTAMP
    assert client.produce(topic, make_batch(b"x")).error_code == 0


def test_a_codec_of_the_topic_is_applied_by_the_broker(client: Client) -> None:
    topic = client.create(compression_type="lz4")
    batch = make_batch(*(b"v%d" % place for place in range(20)), codec=Codec.GZIP)
    assert client.produce(topic, batch).error_code == 0
    kept = client.fetch(topic, 0).records
    assert read_header(kept).codec == Codec.LZ4
    assert client.values(topic) == [b"v%d" % place for place in range(20)]


def test_a_compacted_topic_takes_only_records_with_keys(client: Client) -> None:
    topic = client.create(cleanup_policy="compact")
    assert client.produce(topic, make_batch(b"x")).error_code == Error.INVALID_RECORD
    assert client.produce(topic, make_batch(b"x", key=b"k")).error_code == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("version", versions(Api.PRODUCE))
def test_records_without_a_key_are_named_from_version_8_on(
    client: Client, version: int, codec: Codec
) -> None:
    topic = client.create(cleanup_policy="compact")
    if codec is Codec.ZSTD and version < 7:
        codec = Codec.GZIP
    records = [
        Record(index, now_ms(), None if index in (0, 5, 9) else b"k", b"v") for index in range(10)
    ]
    key = key_of(client, topic, version)
    answer = client.produce(key, build_batch(records, codec), version=version)
    assert (answer.error_code, answer.base_offset) == (Error.INVALID_RECORD, -1)
    if version >= 8:
        assert [each.batch_index for each in answer.record_errors] == [0, 5, 9]
        for each in answer.record_errors:
            assert "without a key" in each.batch_index_error_message
        assert "3 of 10" in answer.error_message
    # The answer to another partition of the same request is found behind it.
    other = client.create()
    answers = client.ask(
        Api.PRODUCE,
        version,
        **produce_values(
            {
                key: {0: build_batch(records, codec)},
                key_of(client, other, version): {0: make_batch(b"good")},
            }
        ),
    ).responses
    codes = [each.partition_responses[0].error_code for each in answers]
    assert codes == [Error.INVALID_RECORD, Error.NONE]


def test_an_answer_names_ten_thousand_bad_records_at_most(client: Client) -> None:
    topic = client.create(cleanup_policy="compact")
    answer = client.produce(topic, make_batch(*[b""] * 12_000, codec=Codec.GZIP))
    assert [each.batch_index for each in answer.record_errors] == list(range(10_000))
    assert "12000 of 12000" in answer.error_message


# Idempotence


def numbered(sequence: int, *values: bytes, epoch: int = 0, producer: int = 77) -> bytearray:
    return make_batch(
        *(values or (b"x",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )


def test_names_longer_than_any_topics_are_not_remembered(client: Client) -> None:
    before = _cached_topic_head.cache_info().currsize
    for place in range(50):
        answer = client.produce(fresh_name("n" * 30_000 + str(place)), make_batch(b"x"))
        assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert _cached_topic_head.cache_info().currsize <= before + 1
