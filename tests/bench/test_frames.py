"""The prebuilt requests are what the broker's own decoder takes them for."""

from __future__ import annotations

import socket
import struct

import pytest

from moldau.bench.frames import (
    api_versions_request,
    commit_error,
    commit_request,
    one_batch,
    produce_error,
    produce_request,
)
from moldau.records.batch import check_batch
from moldau.testing import Broker


@pytest.mark.parametrize("topic", ["t", "x" * 200])
def test_a_broker_accepts_the_prebuilt_produce_request(topic: str) -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        _create(broker.bootstrap, topic)
        answer = _ask(host, int(port), produce_request(topic, 100))
        assert produce_error(answer, topic) == 0


def test_the_error_code_of_a_produce_answer_is_found() -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        request = bytearray(produce_request("t", 100))
        _create(broker.bootstrap, "t")
        request[-5] ^= 0xFF
        corrupt_message = 2
        assert produce_error(_ask(host, int(port), bytes(request)), "t") == corrupt_message


def test_a_broker_stores_the_offset_of_the_prebuilt_commit_request() -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        _create(broker.bootstrap, "t")
        assert _committed(broker.bootstrap, "g") == []
        assert commit_error(_ask(host, int(port), commit_request("g", "t", 7))) == 0
        assert _committed(broker.bootstrap, "g") == [("t", 0, 7)]


def test_the_error_code_of_a_commit_answer_is_found() -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        _committed(broker.bootstrap, "g")
        unknown_topic_or_partition = 3
        answer = _ask(host, int(port), commit_request("g", "missing", 7))
        assert commit_error(answer) == unknown_topic_or_partition


def test_the_shortest_question_is_answered() -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        answer = _ask(host, int(port), api_versions_request())
        assert struct.unpack_from(">ih", answer, 4) == (1, 0)


@pytest.mark.parametrize("size", [100, 1024, 2_000_000])
def test_a_sample_batch_is_valid_and_about_as_large_as_asked(size: int) -> None:
    batch = one_batch(size, 1_000_000)
    header = check_batch(batch, 0, len(batch))
    assert header.size == len(batch)
    assert header.count == max(1, 1_000_000 // (size + 10))


def _create(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result()


def _committed(bootstrap: str, group: str) -> list[tuple[str, int, int]]:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return [(at.topic, at.partition, at.offset) for at in found.topic_partitions]


def _ask(host: str, port: int, request: bytes) -> bytes:
    with socket.create_connection((host, port), 10) as sock:
        sock.sendall(request)
        head = sock.recv(4, socket.MSG_WAITALL)
        return head + sock.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
