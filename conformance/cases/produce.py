"""Produce: good batches of every form, and bad ones."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from crc32c import crc32c

from conformance.registry import case
from conformance.session import Session
from conformance.values import shown_batches
from moldau.records.batch import batches
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, records_of
from moldau.wire.apis import Api

_STRANGER = UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0003)
_CRC_START = 21


class _Topic:
    """Produces to one topic by name or id, whichever the version wants."""

    def __init__(self, s: Session, version: int, name: str) -> None:
        self.s, self.version, self.name = s, version, name
        self.id = s.topic_id(name)

    def put(
        self,
        what: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        patience_s: float = 20.0,
        **more: Any,
    ) -> None:
        data = [{"index": partition, "records": records}]
        topic = {"name": self.name, "topic_id": self.id, "partition_data": data}
        values: dict[str, Any] = {"acks": acks, "timeout": 5000, "topic_data": [topic]} | more
        self.s.ask(what, Api.PRODUCE, self.version, patience_s=patience_s, **values)


def _topic(s: Session, version: int, **configs: str) -> _Topic:
    texts = {key.replace("_", "."): value for key, value in configs.items()}
    return _Topic(s, version, s.topic(configs=texts))


def _patched(batch: bytes, layout: str, position: int, value: int, *, crc: bool = True) -> bytes:
    """The batch with one number of its header replaced, and the CRC to match unless told not to."""
    data = bytearray(batch)
    struct.pack_into(layout, data, position, value)
    if crc:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[_CRC_START:])))
    return bytes(data)


@case(Api.PRODUCE)
def good_batches(s: Session, version: int) -> None:
    topic = _topic(s, version)
    topic.put("one record", s.batch(b"a"))
    topic.put("three records", s.batch(b"b", b"c", b"d"))
    topic.put("acks=1", s.batch(b"e"), acks=1)
    for codec in Codec:
        if codec is Codec.ZSTD and version < 7:
            continue
        topic.put(codec.name, s.batch(*[b"squeeze me" * 10] * 5, codec=codec))
    topic.put("a null value and no key", s.batch(None, key=None))
    topic.put("empty value", s.batch(b"", key=b""))
    topic.put("a leader epoch of its own", s.batch(b"x", leader_epoch=9))


@case(Api.PRODUCE, last=6)
def zstd_before_it_was_known(s: Session, version: int) -> None:
    _topic(s, version).put("zstd", s.batch(b"a" * 100, codec=Codec.ZSTD))


@case(Api.PRODUCE)
def who_and_where(s: Session, version: int) -> None:
    topic = _topic(s, version)
    batch = s.batch(b"a")
    topic.put("an unknown partition", batch, partition=5)
    topic.put("a negative partition", batch, partition=-1)
    topic.put("acks=2", batch, acks=2)
    topic.put("acks=-2", batch, acks=-2)
    topic.put("acks=3 and an unknown partition", batch, acks=3, partition=9)
    topic.put("no time to wait", batch, timeout=0)
    stranger = {"name": s.name("unknown"), "topic_id": _STRANGER}
    data = [{"index": 0, "records": batch}]
    for what, key in (
        ("an unknown topic", stranger),
        ("an empty name", {"name": "", "topic_id": None}),
        ("a bad name", {"name": "a b", "topic_id": _STRANGER}),
    ):
        topic.put(what, batch, topic_data=[key | {"partition_data": data}])
    topic.put("no topics", batch, topic_data=[])
    known = {"name": topic.name, "topic_id": topic.id}
    topic.put("no partitions", batch, topic_data=[known | {"partition_data": []}])
    topic.put(
        "one topic known, one not",
        batch,
        topic_data=[stranger | {"partition_data": data}, known | {"partition_data": data}],
    )


@case(Api.PRODUCE)
def the_same_partition_twice(s: Session, version: int) -> None:
    topic = _topic(s, version)
    data = [{"index": 0, "records": s.batch(b"a")}, {"index": 0, "records": s.batch(b"b")}]
    known = {"name": topic.name, "topic_id": topic.id}
    topic.put("in one topic", None, topic_data=[known | {"partition_data": data}])


@case(Api.PRODUCE)
def several_partitions(s: Session, version: int) -> None:
    one, two = s.topic(3), s.topic()
    data = [{"index": n, "records": s.batch(b"v%d" % n)} for n in (2, 0, 7, 1)]
    first = {"name": one, "topic_id": s.topic_id(one), "partition_data": data}
    second = {"name": two, "topic_id": s.topic_id(two), "partition_data": data[1:2]}
    s.ask("two topics", Api.PRODUCE, version, acks=-1, timeout=5000, topic_data=[second, first])


@case(Api.PRODUCE)
def no_answer_wanted(s: Session, version: int) -> None:
    topic = _topic(s, version)
    connection = s.connect()
    data = [{"index": 0, "records": s.batch(b"quiet")}]
    key = {"name": topic.name, "topic_id": topic.id}
    connection.send(
        Api.PRODUCE,
        version,
        {"acks": 0, "timeout": 0, "topic_data": [key | {"partition_data": data}]},
    )
    # Answers come in order, so this one would come second.
    s.ask("the next request", Api.HEARTBEAT, 0, via=connection, group_id="g", member_id="m")
    # Kafka hangs up on an error, since it cannot answer.
    bad = [{"index": 99, "records": s.batch(b"quiet")}]
    connection.send(
        Api.PRODUCE,
        version,
        {"acks": 0, "timeout": 0, "topic_data": [key | {"partition_data": bad}]},
    )
    # A request in the same packet may still be answered.
    s.settle()
    s.ask(
        "after an error",
        Api.HEARTBEAT,
        0,
        via=connection,
        group_id="g",
        member_id="m",
        patience_s=5,
    )
    topic.put("what was appended", s.batch(b"next"))


@case(Api.PRODUCE)
def bad_batches(s: Session, version: int) -> None:
    topic = _topic(s, version)
    good = s.batch(b"a", b"b", b"c")
    # Kafka forgets to answer this one.
    topic.put("null", None, patience_s=0.3)
    topic.put("empty", b"")
    topic.put("a wrong CRC", _patched(good, ">I", 17, 12345, crc=False))
    topic.put("a flipped bit", good[:-1] + bytes([good[-1] ^ 1]))
    topic.put("cut short", good[:-3])
    topic.put("only a header", good[:61])
    topic.put("half a header", good[:30])
    topic.put("sixteen bytes", good[:16])
    topic.put("ten bytes", good[:10])
    _topic(s, version).put("with rubbish behind", good + b"rubbish")
    topic.put("two batches", good + good)
    topic.put("length too large", _patched(good, ">i", 8, len(good), crc=False))
    topic.put("length too small", _patched(good, ">i", 8, 30, crc=False))
    topic.put("length negative", _patched(good, ">i", 8, -1, crc=False))
    topic.put("length zero", _patched(good, ">i", 8, 0, crc=False))
    for magic in (0, 1, 3, 127, -1):
        topic.put(f"magic {magic}", _patched(good, ">b", 16, magic))
    topic.put("base offset not zero", _patched(good, ">q", 0, 7))
    topic.put("base offset negative", _patched(good, ">q", 0, -7))
    topic.put("last offset delta too large", _patched(good, ">i", 23, 5))
    topic.put("last offset delta too small", _patched(good, ">i", 23, 1))
    topic.put("last offset delta negative", _patched(good, ">i", 23, -1))
    topic.put("count too large", _patched(good, ">i", 57, 4))
    topic.put("count too small", _patched(good, ">i", 57, 2))
    topic.put("count zero", _patched(_patched(good, ">i", 57, 0), ">i", 23, -1))
    topic.put("count -1", _patched(good, ">i", 57, -1))
    topic.put("an unknown codec", _patched(good, ">h", 21, 5))
    topic.put("unknown attributes", _patched(good, ">h", 21, 0x4000))
    topic.put("a control batch", _patched(good, ">h", 21, 0x20))
    topic.put("largest timestamp too small", _patched(good, ">q", 35, s.now_ms - 70_000))
    topic.put("good in the end", good)
    # One of the brokers takes these.
    for what, attributes in (
        ("a codec it is not compressed with", 1),
        ("append time claimed by the producer", 0x08),
    ):
        _topic(s, version).put(what, _patched(good, ">h", 21, attributes))


@case(Api.PRODUCE)
def timestamps(s: Session, version: int) -> None:
    topic = _topic(s, version)
    topic.put("none", s.batch(b"a", timestamp=-1, step_ms=0))
    topic.put("negative", s.batch(b"a", timestamp=-5))
    topic.put("long ago", s.batch(b"a", timestamp=1000))
    topic.put("a minute ahead", s.batch(b"a", timestamp=s.now_ms + 60_000))
    topic.put("two hours ahead", s.batch(b"a", timestamp=s.now_ms + 7_200_000))
    topic.put("one of two ahead", s.batch(b"a", b"b", timestamp=s.now_ms, step_ms=7_200_000))
    narrow = _topic(s, version, message_timestamp_before_max_ms="1000000")
    narrow.put("too long ago", s.batch(b"a", timestamp=s.now_ms - 2_000_000))
    stamped = _topic(s, version, message_timestamp_type="LogAppendTime")
    stamped.put("stamped by the broker", s.batch(b"a", b"b"))
    stamped.put("whatever it says", s.batch(b"a", timestamp=5))


@case(Api.PRODUCE)
def sizes(s: Session, version: int) -> None:
    topic = _topic(s, version, max_message_bytes="500")
    topic.put("fits", s.batch(b"x" * 300))
    topic.put("too large", s.batch(b"x" * 600))
    topic.put("too large, compressed small", s.batch(b"x" * 600, codec=Codec.GZIP))
    exact = s.batch(b"x" * (500 - len(s.batch(b"")) - 1))
    s.note("bytes", len(exact), Api.PRODUCE)
    topic.put("just fits", exact)


@case(Api.PRODUCE)
def sequences(s: Session, version: int) -> None:
    topic = _topic(s, version)

    def put(what: str, sequence: int, count: int = 1, producer: int = 1000, epoch: int = 0) -> None:
        values = [b"v"] * count
        batch = s.batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        topic.put(what, batch)

    put("first", 0, 2)
    put("next", 2)
    put("next again", 2)
    put("the first again", 0, 2)
    put("a gap", 5)
    put("one before", 1)
    put("on", 3)
    put("an older epoch's successor", 0, epoch=1)
    put("the old epoch", 4)
    put("a new epoch not from zero", 3, epoch=2)
    put("the epoch two from zero", 0, epoch=2)
    put("a new producer not from zero", 5, producer=1001)
    put("a producer id without an epoch", 0, producer=1002, epoch=-1)
    put("no sequence", -1, producer=1003)
    put("wrapping", 2**31 - 1, producer=1004)
    put("wrapped", 0, producer=1004)
    for number in range(7):
        put(f"number {number}", number, producer=1005)
    put("five back", 2, producer=1005)
    put("six back", 1, producer=1005)


@case(Api.PRODUCE)
def compacted_topics(s: Session, version: int) -> None:
    topic = _topic(s, version, cleanup_policy="compact")
    topic.put("with a key", s.batch(b"a"))
    topic.put("without a key", s.batch(b"a", key=None))
    topic.put("a tombstone", s.batch(None))
    some = [Record(0, s.now_ms, b"k", b"v", ()), Record(1, s.now_ms, None, b"v", ())]
    topic.put("one of two without a key", bytes(build_batch(some)))
    topic.put("compressed without a key", s.batch(b"a", key=None, codec=Codec.LZ4))


@case(Api.PRODUCE)
def transactional_batches(s: Session, version: int) -> None:
    topic = _topic(s, version)
    batch = s.batch(b"a", producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
    if Api.ADD_PARTITIONS_TO_TXN in s.broker.versions:
        s.until(lambda: _coordinates(s), "coordinator of transactions")
        s.until(lambda: _checks(s, topic, batch), "transactions that are checked")
    topic.put("without a transaction", batch, transactional_id=None)
    topic.put("with an id nobody knows", batch, transactional_id="nobody")
    topic.put("an id and a plain batch", s.batch(b"a"), transactional_id="nobody")
    topic.put("an empty id and a plain batch", s.batch(b"a"), transactional_id="")


def _coordinates(s: Session) -> bool:
    """Whether the coordinator of transactions is there, which the first question creates."""
    answer = s.quietly(Api.FIND_COORDINATOR, 1, key="nobody", key_type=1)
    return int(answer.error_code) == 0


def _checks(s: Session, topic: _Topic, batch: bytes) -> bool:
    """Whether the broker can ask that coordinator; until then it is short of replicas."""
    data = [{"name": topic.name, "partition_data": [{"index": 0, "records": batch}]}]
    values = {"acks": -1, "timeout": 5000, "transactional_id": "nobody", "topic_data": data}
    answer = s.quietly(Api.PRODUCE, 9, **values)
    return int(answer.responses[0].partition_responses[0].error_code) != 19


@case(Api.PRODUCE, newest=True)
def stored_as_configured(s: Session, version: int) -> None:
    """What a topic with a codec of its own hands out again."""
    for kind in ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"):
        topic = _topic(s, version, compression_type=kind)
        for codec in (Codec.NONE, Codec.GZIP):
            topic.put(f"{codec.name} to {kind}", s.batch(b"again " * 50, b"and " * 50, codec=codec))
        answer = s.quietly(
            Api.FETCH,
            12,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            replica_id=-1,
            topics=[
                {
                    "topic": topic.name,
                    "partitions": [
                        {
                            "partition": 0,
                            "fetch_offset": 0,
                            "partition_max_bytes": 1 << 20,
                            "current_leader_epoch": -1,
                            "last_fetched_epoch": -1,
                        }
                    ],
                }
            ],
        )
        data = bytes(answer.responses[0].partitions[0].records or b"")
        heads = shown_batches(data)["batches"]
        for head in heads:
            # Two compressors of the same format need not agree on the bytes.
            for key in ("payload", "crc", "length"):
                head.pop(key)
        s.note(f"batches in {kind}", heads, Api.PRODUCE)
        for position, _ in batches(data):
            s.note("records", [list(each) for each in records_of(data, position)], Api.PRODUCE)
