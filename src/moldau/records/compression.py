"""The codecs of record batches, with a cap on what decompression may produce.

The cap holds while decompressing: output goes into a buffer that is never larger, so a bomb costs
its cap at most. Snappy is read raw or in xerial's framing (Java's SnappyOutputStream) and written
in the latter; lz4 is the frame format with independent blocks, the only kind Java's client reads.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import cramjam

from moldau.records.batch import BatchTooLarge, Bytes, CorruptBatch, InvalidRecord
from moldau.records.scratch import scratch

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = struct.pack(">8sii", XERIAL_MAGIC, 1, 1)
XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
# Snappy's densest copy is 64 bytes of output for 3 of input; a larger claim is a lie.
_SNAPPY_MAX_RATIO = 22
_FIRST_GUESS = 64 * 1024


class Codec(IntEnum):
    """The codec numbers of a batch's attributes, named as in `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> Codec:
        """Return the codec of that number; InvalidRecord if there is none."""
        try:
            return cls(number)
        except ValueError:
            raise InvalidRecord(f"unknown compression codec {number}") from None


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """`data` as the records section of a batch with that codec."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level in (None, -1) else level))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    if codec is Codec.LZ4:
        stream = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        stream.compress(bytes(data))
        return bytes(stream.finish())
    return _compress_xerial(data)


def decompress(codec: Codec, data: Bytes, limit: int) -> Bytes:
    """Decompress `data`, to at most `limit` bytes.

    BatchTooLarge beyond the limit, CorruptBatch for anything that is not the codec's format.
    """
    if codec is Codec.NONE:
        if len(data) > limit:
            raise _too_large(len(data), limit)
        return data
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    capacity = min(limit, max(_FIRST_GUESS, 4 * len(data)))
    while True:
        output = scratch(capacity)
        try:
            size = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise CorruptBatch(f"{codec.name.lower()} data is corrupt: {error}") from None
            if capacity >= limit:
                raise _too_large(capacity + 1, limit) from None
            capacity = min(limit, 4 * capacity)
        else:
            return memoryview(output)[:size]


def _too_large(size: int, limit: int) -> BatchTooLarge:
    return BatchTooLarge(size, limit, "decompressed records")


def _compress_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + XERIAL_BLOCK])))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, limit: int) -> bytearray:
    output = bytearray()
    with memoryview(data) as view:
        if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
            _decompress_block(view, output, limit)
            return output
        position, end = len(XERIAL_HEADER), len(view)
        if end < position:
            raise CorruptBatch("snappy data ends inside its header")
        while position < end:
            if end - position < _BLOCK_LENGTH.size:
                raise CorruptBatch("snappy data ends inside a block length")
            (length,) = _BLOCK_LENGTH.unpack_from(view, position)
            position += _BLOCK_LENGTH.size
            if not 0 < length <= end - position:
                raise CorruptBatch(f"snappy block length {length} does not fit")
            _decompress_block(view[position : position + length], output, limit)
            position += length
    return output


def _decompress_block(block: memoryview, output: bytearray, limit: int) -> None:
    raw = bytes(block)
    try:
        claimed = cramjam.snappy.decompress_raw_len(raw)
        if len(output) + claimed > limit:
            raise _too_large(len(output) + claimed, limit)
        if claimed > _SNAPPY_MAX_RATIO * len(raw):
            raise CorruptBatch(f"a snappy block of {len(raw)} bytes claims to hold {claimed}")
        if claimed:
            output += cramjam.snappy.decompress_raw(raw)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy data is corrupt: {error}") from None
