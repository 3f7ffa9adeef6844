"""Prebuilt requests, so that sending one costs the load generator a single `send`."""

from __future__ import annotations

import struct
import time

from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

# The versions that librdkafka 2.x sends; the encoding of Produce has not changed since 9.
PRODUCE_VERSION = 10
COMMIT_VERSION = 9
CLIENT_ID = b"bench"


def batch_of(count: int, message_size: int) -> bytes:
    """Return a record batch of `count` messages without keys, stamped with the present."""
    now_ms = time.time_ns() // 1_000_000
    value = b"m" * message_size
    return bytes(build_batch(Record(n, now_ms, None, value, ()) for n in range(count)))


def one_batch(message_size: int, target_bytes: int) -> bytes:
    """Return a batch close to `target_bytes`, as a busy producer would send it."""
    return batch_of(max(1, target_bytes // (message_size + 10)), message_size)


def produce_request(topic: str, message_size: int, acks: int = 1) -> bytes:
    """Return a framed Produce request of one message for partition 0."""
    return produce_batch_request(topic, batch_of(1, message_size), acks)


def produce_batch_request(topic: str, batch: bytes, acks: int = 1) -> bytes:
    """Return a framed Produce request of one batch for partition 0."""
    name = topic.encode()
    body = b"".join(
        (
            struct.pack(">hhih", 0, PRODUCE_VERSION, 1, len(CLIENT_ID)),
            CLIENT_ID,
            b"\0",
            struct.pack(">Bhi", 0, acks, 30_000),
            b"\x02",
            _unsigned(len(name) + 1),
            name,
            b"\x02",
            struct.pack(">i", 0),
            _unsigned(len(batch) + 1),
            batch,
            b"\0\0\0",
        )
    )
    return struct.pack(">i", len(body)) + body


def produce_error(response: bytes, topic: str) -> int:
    """Return the error code in the answer to `produce_request`, given whole with its length."""
    # Length, correlation id, tags; one topic, its name; one partition, its index; then the code.
    position = 4 + 4 + 1 + 1 + len(_unsigned(len(topic) + 1)) + len(topic) + 1 + 4
    (code,) = struct.unpack_from(">h", response, position)
    return int(code)


def commit_request(group: str, topic: str, offset: int) -> bytes:
    """Return a framed OffsetCommit request for partition 0, from outside the group's membership."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    body = encode_request(Api.OFFSET_COMMIT, COMMIT_VERSION, values)
    return request_frame(Api.OFFSET_COMMIT, COMMIT_VERSION, 1, CLIENT_ID.decode(), body)


def commit_error(response: bytes) -> int:
    """Return the error code in the answer to `commit_request`, given whole with its length."""
    # Length, correlation id, tags.
    body = memoryview(response)[4 + 4 + 1 :]
    answer = decode_response(Api.OFFSET_COMMIT, COMMIT_VERSION, body)
    return int(answer.topics[0].partitions[0].error_code)


def api_versions_request() -> bytes:
    """Return a framed ApiVersions request of version 0, the shortest question there is."""
    body = struct.pack(">hhih", 18, 0, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(body)) + body


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
