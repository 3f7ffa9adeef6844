"""kcat, as Debian packages it: an older librdkafka (2.0) than confluent-kafka's."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from moldau.records.compression import Codec as StoredCodec
from moldau.testing import Broker
from tests.clients.client import CODECS, NOON_MS, WITHIN_S, Client, Codec, Message, read_all
from tests.clients.segments import stored_batches

KCAT = shutil.which("kcat")

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not on PATH (apt install kcat)")


class Kcat:
    """Runs `kcat -b BROKER WORDS...`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *words: str, typed: bytes = b"") -> bytes:
        ended = subprocess.run(
            [str(KCAT), "-b", self._bootstrap, *words],
            input=typed,
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout

    def consume(self, topic: str, count: int, *words: str) -> list[dict[str, Any]]:
        found = self("-C", "-t", topic, "-p", "0", "-c", str(count), "-J", "-q", *words)
        return [json.loads(line) for line in found.splitlines()]


@pytest.fixture
def kcat(broker: Broker) -> Kcat:
    return Kcat(broker.bootstrap)


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_every_client_reads(
    broker: Broker, kcat: Kcat, clients: dict[str, Client], topic: str, codec: Codec
) -> None:
    sent = [(b"key %d" % number, b"value %d " % number * 10) for number in range(100)]
    typed = b"".join(b"%b:%b\n" % pair for pair in sent)
    kcat("-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "name=content", typed=typed)
    batches = stored_batches(broker, topic)
    assert {batch.codec for batch in batches} == {StoredCodec[codec.upper()]}
    for client in clients.values():
        read = [each.message for each in read_all(client, topic, 100)]
        assert [(each.key, each.value) for each in read] == sent
        assert {each.headers for each in read} == {(("name", b"content"),)}
    assert len(kcat.consume(topic, 100)) == 100


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_every_client_wrote(
    kcat: Kcat, clients: dict[str, Client], topic: str, codec: Codec
) -> None:
    messages = [
        Message(b"value " * 20, key=b"key", headers=(("a", b"1"), ("b", b"2"))),
        Message(None, key=b"null value", timestamp_ms=NOON_MS + 1),
        Message(b"null key " * 20),
    ]
    for client in clients.values():
        client.produce(topic, messages, codec=codec)
    read = kcat.consume(topic, 9, "-o", "beginning")
    assert [each["offset"] for each in read] == list(range(9))
    for first in (0, 3, 6):
        keyed, null_value, null_key = read[first : first + 3]
        assert (keyed["key"], keyed["payload"]) == ("key", "value " * 20)
        assert keyed["headers"] == ["a", "1", "b", "2"]
        assert (keyed["tstype"], keyed["ts"]) == ("create", NOON_MS)
        assert (null_value["key"], null_value["payload"]) == ("null value", None)
        assert null_value["ts"] == NOON_MS + 1
        assert (null_key["key"], null_key["payload"]) == (None, "null key " * 20)


def test_kcat_reads_from_an_offset_the_tail_and_a_time(
    kcat: Kcat, clients: dict[str, Client], topic: str
) -> None:
    clients["aiokafka"].produce(
        topic, [Message(b"%d" % number, timestamp_ms=NOON_MS + number) for number in range(10)]
    )

    def values(start: str, count: int) -> list[str]:
        return [each["payload"] for each in kcat.consume(topic, count, "-o", start)]

    assert values("4", 2) == ["4", "5"]
    assert values("-3", 3) == ["7", "8", "9"]
    assert values(f"s@{NOON_MS + 6}", 2) == ["6", "7"]
    assert kcat("-Q", "-t", f"{topic}:0:{NOON_MS + 5}") == f"{topic} [0] offset 5\n".encode()


def test_kcat_writes_a_megabyte_and_exits_at_the_end(kcat: Kcat, topic: str) -> None:
    line = b"x" * 900_000
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", typed=line + b"\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-o", "beginning") == line + b"\n"


def test_kcat_lists_brokers_and_topics(kcat: Kcat, broker: Broker, topic: str) -> None:
    listed = json.loads(kcat("-L", "-J", "-t", topic))
    assert listed["brokers"] == [{"id": 0, "name": broker.bootstrap}]
    (found,) = listed["topics"]
    assert found["topic"] == topic
    assert [each["partition"] for each in found["partitions"]] == [0, 1, 2]
    assert all(each["leader"] == 0 for each in found["partitions"])
    everything = json.loads(kcat("-L", "-J"))
    assert topic in {each["topic"] for each in everything["topics"]}
