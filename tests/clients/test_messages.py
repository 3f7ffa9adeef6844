"""Messages: what one client wrote, every client reads, byte for byte, under every codec."""

from __future__ import annotations

import hashlib

import pytest

from moldau.records.compression import Codec as StoredCodec
from moldau.testing import Broker
from tests.clients.client import CODECS, NOON_MS, Client, Codec, Message, read_all
from tests.clients.conftest import CLIENTS
from tests.clients.segments import stored_batches

# Long enough that compression pays: clients send the plain bytes when it does not.
MESSAGES = [
    Message(b"plain " * 100),
    Message(b"keyed " * 100, key=b"key"),
    Message(b"", key=b"empty value"),
    Message(None, key=b"null value"),
    Message(b"empty key", key=b""),
    Message(b"null key", key=None),
    Message(b"", key=b""),
    Message(bytes(range(256)), key=bytes(range(255, -1, -1))),
    Message("Vltava, Moldau, ヴルタヴァ".encode(), key="řeka".encode()),
    Message(b"one header", headers=(("name", b"content"),)),
    Message(b"headers", headers=(("b", b"2"), ("a", b"1"), ("b", b""), ("", b"3"), ("é", b"4"))),
    Message(b"earlier", timestamp_ms=NOON_MS - 86_400_000),
    Message(b"later", timestamp_ms=NOON_MS + 1),
    Message(b"the first moment", timestamp_ms=1),
    *(Message(b"%d" % number * 20, key=b"%d" % number) for number in range(100)),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_reads_what_one_wrote(
    broker: Broker, clients: dict[str, Client], topic: str, writer: str, codec: Codec
) -> None:
    offsets = clients[writer].produce(topic, MESSAGES, codec=codec)
    assert offsets == list(range(len(MESSAGES)))
    assert {batch.codec for batch in stored_batches(broker, topic)} == {StoredCodec[codec.upper()]}
    for name, client in clients.items():
        read = read_all(client, topic, len(MESSAGES))
        assert [each.message for each in read] == MESSAGES, name
        assert [each.offset for each in read] == offsets, name
        assert not any(each.is_append_time for each in read), name


def test_a_message_may_be_all_null(clients: dict[str, Client], topic: str) -> None:
    nothing = Message(None, headers=(("h", None),))
    writers = [client for client in clients.values() if client.sends_null_key_and_value]
    assert writers
    for writer in writers:
        writer.produce(topic, [nothing])
    for client in clients.values():
        read = read_all(client, topic, len(writers))
        assert [each.message for each in read] == [nothing] * len(writers)


def test_a_header_may_be_null(clients: dict[str, Client], topic: str) -> None:
    sent = Message(b"value", headers=(("null", None), ("empty", b"")))
    writers = [client for client in clients.values() if client.sends_null_headers]
    assert writers
    for writer in writers:
        writer.produce(topic, [sent])
    for client in clients.values():
        read = read_all(client, topic, len(writers))
        assert [each.message for each in read] == [sent] * len(writers)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_messages_of_a_megabyte_pass(
    clients: dict[str, Client], topic: str, writer: str, codec: Codec
) -> None:
    """Noise, so that no codec makes it smaller, and a batch's size is its messages'."""
    noise = hashlib.shake_128(writer.encode()).digest(1_000_000)
    sent = [Message(b"before"), Message(noise, key=b"noise"), Message(b"\0" * 1_000_000)]
    clients[writer].produce(topic, sent, codec=codec)
    for name, client in clients.items():
        read = [each.message for each in read_all(client, topic, len(sent))]
        assert read == sent, name


def test_partitions_keep_apart_what_is_sent_to_them(client: Client, topic: str) -> None:
    sent = {
        partition: [Message(b"%d-%d" % (partition, number)) for number in range(50)]
        for partition in range(3)
    }
    for partition, messages in sent.items():
        assert client.produce(topic, messages, partition=partition) == list(range(50))
    for partition, messages in sent.items():
        read = read_all(client, topic, 50, partition)
        assert [each.message for each in read] == messages
