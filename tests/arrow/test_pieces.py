"""Pieces of an answer: whole batches, all of them, in memory of their own."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from moldau.arrow.pieces import pieces
from moldau.peer.fetch_stream import FetchStream
from moldau.records.batch import BatchError
from moldau.records.record import Record, build_batch
from moldau.wire.fetch.response import FetchedPartition

NOTHING = FetchedPartition(0)


def streamed(data: bytes) -> FetchStream:
    """All but the first bytes come later."""
    to_come = [memoryview(data)[100:]]

    def take(room: memoryview) -> None:
        room[:] = to_come[0][: len(room)]
        to_come[0] = to_come[0][len(room) :]

    return FetchStream(NOTHING, len(data), memoryview(data)[:100], take, lambda: None)


def batches_of(sizes: list[int]) -> list[bytes]:
    return [
        bytes(build_batch([Record(offset, 0, None, bytes(size))], base_offset=offset))
        for offset, size in enumerate(sizes)
    ]


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    st.integers(1, 4000),
    st.integers(0, 200),
)
def test_every_batch_comes_whole_and_once_whatever_its_size(
    sizes: list[int], target: int, cut: int
) -> None:
    batches = batches_of(sizes)
    cut_short = batches[-1][:cut] if cut < len(batches[-1]) else b""
    whole = b"".join(batches)
    found = list(pieces(streamed(whole + cut_short), target))
    assert b"".join(bytes(piece.buffer[: piece.size]) for piece in found) == whole
    assert found[-1].next_offset == len(sizes)
    assert sum(len(piece.table) for piece in found) == len(batches)
    largest = max(map(len, batches))
    for piece in found:
        assert piece.is_scratch
        assert piece.size <= max(target, largest + 12)


def test_large_batches_are_pieces_of_their_own_and_hardly_anything_is_copied() -> None:
    found = list(pieces(streamed(b"".join(batches_of([700_000] * 5)))))
    assert [len(piece.table) for piece in found] == [1] * 5
    assert all(len(piece.buffer) - piece.size <= 12 for piece in found[1:])


def test_the_last_piece_is_known_as_such_though_a_batch_is_cut_short_after_it() -> None:
    batches = batches_of([900_000] * 3)
    for cut in (12, 300_000):
        stream = streamed(b"".join(batches) + batches[0][:cut])
        assert [(piece.size, stream.left > 0) for piece in pieces(stream)] == [
            (len(batches[0]), True), (len(batches[1]), True), (len(batches[2]), False)
        ]  # fmt: skip


def test_a_piece_can_be_written_over_while_the_next_one_is_taken() -> None:
    batches = batches_of([400] * 20)
    kept = []
    for piece in pieces(streamed(b"".join(batches)), 1000):
        kept.append(bytes(piece.buffer[: piece.size]))
        piece.buffer[: piece.size] = bytes(piece.size)
    assert b"".join(kept) == b"".join(batches)


@given(st.binary(max_size=600), st.integers(1, 700))
def test_arbitrary_bytes_are_pieces_or_refused(data: bytes, target: int) -> None:
    try:
        found = list(pieces(streamed(data), target))
    except BatchError:
        return
    assert sum(piece.size for piece in found) <= len(data)


@given(st.randoms(use_true_random=False), st.integers(1, 3000))
def test_damaged_batches_are_pieces_or_refused(chance: random.Random, target: int) -> None:
    data = bytearray(b"".join(batches_of([200] * 6)))
    for _ in range(3):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        found = list(pieces(streamed(bytes(data)), target))
    except BatchError:
        return
    assert sum(piece.size for piece in found) <= len(data)
