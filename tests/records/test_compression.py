from __future__ import annotations

import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.batch import BatchError, BatchTooLarge, CorruptBatch, InvalidRecord
from moldau.records.compression import XERIAL_HEADER, Codec, compress, decompress

CODECS = [codec for codec in Codec if codec]


@given(st.binary(max_size=2000), st.sampled_from(Codec), st.integers(1, 60))
def test_what_is_compressed_comes_back(data: bytes, codec: Codec, repeat: int) -> None:
    data *= repeat
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@given(st.binary(max_size=200), st.sampled_from(CODECS))
def test_arbitrary_bytes_raise_batch_errors_only(data: bytes, codec: Codec) -> None:
    try:
        decompress(codec, data, 10_000)
    except BatchError:
        pass


@given(st.sampled_from(CODECS), st.data())
def test_damaged_data_raises_batch_errors_only(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some words, some words again" * 20))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    del packed[data.draw(st.integers(1, len(packed))) :]
    try:
        assert len(decompress(codec, bytes(packed), 10_000)) <= 10_000
    except BatchError:
        pass


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_never_expanded_beyond_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(BatchTooLarge):
        decompress(codec, bomb, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20


def test_a_snappy_block_that_claims_too_much_is_corrupt() -> None:
    claim = b"\xff\xff\xff\x07" + b"\0" * 10
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, claim, 1 << 30)


def test_snappy_is_read_raw_and_framed() -> None:
    data = b"one two three " * 10_000
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), 10**6)) == data
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(XERIAL_HEADER)
    assert bytes(decompress(Codec.SNAPPY, framed, 10**6)) == data


@pytest.mark.parametrize("length", [-1, 0, 1000])
def test_snappy_block_lengths_are_checked(length: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"x", 1000)


def test_other_implementations_read_what_is_written() -> None:
    data = b"one two three " * 10_000
    assert lz4.frame.decompress(compress(Codec.LZ4, data)) == data
    assert (
        zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, data)) == data
    )


def test_lz4_blocks_are_independent_as_java_needs_them() -> None:
    assert compress(Codec.LZ4, b"abc" * 100_000)[4] & 0x20


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.ZSTD, (-5, 22))])
def test_levels_are_taken(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert bytes(decompress(codec, compress(codec, b"abc" * 99, level), 1000)) == b"abc" * 99


def test_an_unknown_codec_is_invalid() -> None:
    with pytest.raises(InvalidRecord):
        Codec.of(5)
