"""Produce of idempotent producers: duplicates, gaps, epochs."""

from __future__ import annotations

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import (
    Client,
    make_batch,
    produce_values,
)

# Idempotence


def numbered(sequence: int, *values: bytes, epoch: int = 0, producer: int = 77) -> bytearray:
    return make_batch(
        *(values or (b"x",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )


def test_a_duplicate_is_answered_with_its_first_offset_and_not_written_again(
    client: Client,
) -> None:
    topic = client.create()
    sent = [numbered(sequence) for sequence in range(6)]
    for place, batch in enumerate(sent):
        assert client.produce(topic, batch).base_offset == place
    for place in range(1, 6):
        again = client.produce(topic, sent[place])
        assert (again.error_code, again.base_offset) == (0, place)
    # The first one is the sixth last, and no longer remembered.
    forgotten = client.produce(topic, sent[0])
    assert forgotten.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.end_of(topic) == 6


def test_a_pipelined_duplicate_is_noticed_before_the_first_is_written(client: Client) -> None:
    topic = client.create()
    batch = numbered(0, b"a", b"b")
    frames = [client.frame(Api.PRODUCE, 9, **produce_values({topic: {0: batch}})) for _ in range(3)]
    client.send_bytes(b"".join(frames))
    answers = [client.receive().responses[0].partition_responses[0] for _ in frames]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0)] * 3
    assert client.end_of(topic) == 2


def test_a_gap_in_the_sequence_is_out_of_order(client: Client) -> None:
    topic = client.create()
    assert client.produce(topic, numbered(0, b"a", b"b")).error_code == 0
    for sequence in (1, 3, 2**31 - 1):
        answer = client.produce(topic, numbered(sequence))
        assert answer.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert answer.base_offset == -1
    assert client.produce(topic, numbered(2)).base_offset == 2


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0(client: Client) -> None:
    topic = client.create()
    assert client.produce(topic, numbered(0, epoch=3)).error_code == 0
    fenced = client.produce(topic, numbered(1, epoch=2))
    assert fenced.error_code == Error.INVALID_PRODUCER_EPOCH
    skipped = client.produce(topic, numbered(1, epoch=4))
    assert skipped.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, numbered(0, epoch=4)).base_offset == 1
    assert client.produce(topic, numbered(1, epoch=3)).error_code == Error.INVALID_PRODUCER_EPOCH


def test_sequences_go_on_at_0_after_the_largest_number(client: Client) -> None:
    topic = client.create()
    last = 2**31 - 1
    assert client.produce(topic, numbered(last - 1, b"a", b"b", b"c")).base_offset == 0
    # The batch took last - 1, last and 0.
    assert client.produce(topic, numbered(1)).base_offset == 3
    again = client.produce(topic, numbered(last - 1, b"a", b"b", b"c"))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert client.end_of(topic) == 4


def test_a_producer_id_needs_a_sequence(client: Client) -> None:
    topic = client.create()
    answer = client.produce(topic, numbered(-1))
    assert answer.error_code == Error.INVALID_RECORD


def test_producers_are_told_apart_and_partitions_too(client: Client) -> None:
    topic = client.create(partitions=2)
    for partition in (0, 1):
        for producer in (1, 2):
            batch = numbered(0, producer=producer)
            answer = client.produce(topic, batch, partition=partition)
            assert (answer.error_code, answer.base_offset) == (0, producer - 1)


def test_duplicates_are_noticed_after_a_restart(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        for sequence in range(3):
            client.produce("t", numbered(sequence))
    moldau_broker.stop()
    moldau_broker.start()
    with Client(moldau_broker) as client:
        again = client.produce("t", numbered(2))
        assert (again.error_code, again.base_offset) == (0, 2)
        gap = client.produce("t", numbered(4))
        assert gap.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        fenced = client.produce("t", numbered(3, epoch=-1))
        assert fenced.error_code == Error.INVALID_PRODUCER_EPOCH
        assert client.produce("t", numbered(3)).base_offset == 3
        assert client.end_of("t") == 4
