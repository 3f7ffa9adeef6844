"""The format of snapshots: producer states as the bytes of a file, `<end>.snapshot`.

It is Kafka's: version 1, the crc32c of what follows, a count, and 46-byte entries of a producer and
a batch. Kafka writes one entry for each producer, for its last batch, and takes the last of
several. Here all batches that are remembered are written, oldest first, so that a producer that had
several under way can repeat any of them after a restart. The timestamp of a producer's last entry
is `written_ms`, where Kafka has that of its last record: a producer that writes records from the
past would be forgotten at once, and what it repeats would be written twice.
"""

from __future__ import annotations

import struct

from moldau.log.errors import CorruptFile
from moldau.log.producers.states import (
    KEPT_BATCHES,
    NO_OFFSET,
    Producer,
    ProducerStates,
    WrittenBatch,
)
from moldau.records.checksum import crc32c

_VERSION = 1
_PREFIX = struct.Struct(">hIi")
_CRC_START = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(states: ProducerStates) -> bytes:
    """Return the content of a snapshot file."""
    out = bytearray(_PREFIX.size)
    count = 0
    for producer_id, producer in states.producers.items():
        *older, last = producer.batches or (WrittenBatch(-1, -1, 0, -1),)
        for batch in (*older, last._replace(timestamp=producer.written_ms)):
            count += 1
            out += _ENTRY.pack(
                producer_id,
                producer.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
    _PREFIX.pack_into(out, 0, _VERSION, 0, count)
    _PREFIX.pack_into(out, 0, _VERSION, crc32c(out[_CRC_START:]), count)
    return bytes(out)


def decode_snapshot(content: bytes, path: str, end: int) -> ProducerStates:
    """Return the states of a snapshot taken at `end`; CorruptFile if it is none."""
    if len(content) < _PREFIX.size:
        raise CorruptFile(path, f"{len(content)} bytes are too few for a snapshot")
    version, crc, count = _PREFIX.unpack_from(content)
    if version != _VERSION:
        raise CorruptFile(path, f"snapshot version {version} is not {_VERSION}")
    if crc32c(content[_CRC_START:]) != crc:
        raise CorruptFile(path, "wrong CRC")
    if len(content) != _PREFIX.size + count * _ENTRY.size:
        raise CorruptFile(path, f"{count} entries do not match {len(content)} bytes")
    producers: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(content[_PREFIX.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start = entry
        batches: tuple[WrittenBatch, ...] = ()
        if offset >= 0:
            batches = (WrittenBatch(sequence, offset, delta, timestamp),)
        older = producers.get(producer_id)
        if older is not None and older.epoch == epoch:
            batches = (*older.batches[1 - KEPT_BATCHES :], *batches)
        producers[producer_id] = Producer(
            epoch, coordinator, timestamp, start if start >= 0 else NO_OFFSET, batches
        )
    return ProducerStates.restored(producers, end)
