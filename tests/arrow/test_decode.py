"""Record batches to Arrow: the same as the plain decoder says, and unmoved by hostile bytes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.arrow import kernels
from moldau.arrow.columns import arrow_schema
from moldau.arrow.decode import Aborted, Decoder, Scan, scan
from moldau.records.batch import BatchError, CorruptBatch, InvalidRecord, check_batch
from moldau.records.compression import Codec
from moldau.records.record import Record, assemble, build_batch, build_end_marker, records_of
from moldau.spark.names import ALL, WITHOUT_HEADERS
from tests.examples import EXAMPLES
from tests.spark.batches import as_row, marked, record_lists, select, transactional

FOREVER = 1 << 62


def decoded(
    data: bytes | bytearray,
    columns: tuple[str, ...] = ALL,
    first: int = 0,
    until: int = FOREVER,
    aborted: tuple[tuple[int, int], ...] = (),
    **options: Any,
) -> list[dict[str, Any]]:
    """The rows, which are the same whether values are copied or moved within the buffer."""
    decoder = Decoder(columns, "orders", 3, **options)

    def rows_of(found: Scan) -> list[dict[str, Any]]:
        batches = list(decoder.decode(found, first, until, Aborted(aborted)))
        for batch in batches:
            batch.validate(full=True)
            assert batch.num_rows
            assert batch.schema == arrow_schema(columns)
        return [row for batch in batches for row in batch.to_pylist()]

    kept = bytes(data)
    try:
        copied = rows_of(scan(memoryview(kept)))
    except BatchError as problem:
        with pytest.raises(type(problem), match=re.escape(str(problem))):
            rows_of(scan(memoryview(bytearray(data)), is_scratch=True))
        raise
    assert kept == data
    assert rows_of(scan(memoryview(bytearray(data)), is_scratch=True)) == copied
    return copied


@given(
    records=record_lists(),
    codec=st.sampled_from(Codec),
    columns=st.permutations(ALL).flatmap(
        lambda names: st.integers(1, len(names)).map(lambda count: tuple(names[:count]))
    ),
    append_time=st.none() | st.integers(0, 4_000_000_000_000),
    first=st.integers(0, 15),
    length=st.integers(0, 30),
)
def test_records_become_the_rows_that_they_are(
    records: list[Record],
    codec: Codec,
    columns: tuple[str, ...],
    append_time: int | None,
    first: int,
    length: int,
) -> None:
    data = build_batch(records, codec, append_time_ms=append_time)
    expected = [
        as_row(record, "orders", 3, append_time)
        for record in records
        if first <= record.offset < first + length
    ]
    assert decoded(data, columns, first, first + length) == select(expected, columns)


@given(st.lists(st.tuples(record_lists(), st.sampled_from(Codec)), max_size=5), st.integers(1, 300))
def test_many_batches_of_mixed_codecs_keep_their_order_whatever_the_size_of_a_chunk(
    groups: list[tuple[list[Record], Codec]], target_bytes: int
) -> None:
    data, expected, base = bytearray(), [], 0
    for records, codec in groups:
        moved = [record._replace(offset=record.offset + base) for record in records]
        data += build_batch(moved, codec)
        expected += [as_row(record, "orders", 3) for record in moved]
        base = moved[-1].offset + 1
    assert decoded(data, target_bytes=target_bytes) == expected
    assert scan(memoryview(data)).next_offset == (base if groups else -1)


def test_a_batch_that_is_cut_short_at_the_end_is_left_for_the_next_fetch() -> None:
    whole = build_batch([Record(0, 0, None, b"a")])
    for size in range(len(whole)):
        found = scan(memoryview(whole + whole[:size]))
        assert len(found.table) == 1
        assert found.next_offset == 1


def test_control_batches_and_emptied_batches_give_no_rows_but_count_as_offsets() -> None:
    marker = build_end_marker(
        commits=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=0
    )
    marker[:8] = (1).to_bytes(8, "big")
    emptied = build_batch([], base_offset=2, last_offset_delta=5)
    data = build_batch([Record(0, 0, None, b"a")]) + marker + emptied
    assert [row["offset"] for row in decoded(data)] == [0]
    assert scan(memoryview(data)).next_offset == 8


def test_what_an_aborted_transaction_wrote_is_left_out() -> None:
    data = (
        transactional(0, 7)
        + transactional(1, 8)
        + marked(2, 7, commits=False)
        + transactional(3, 7)
        + marked(4, 7, commits=True)
        + marked(5, 8, commits=True)
        + build_batch([Record(6, 0, None, b"plain")])
    )
    assert [row["offset"] for row in decoded(data)] == [0, 1, 3, 6]
    assert [row["offset"] for row in decoded(data, aborted=((7, 0),))] == [1, 3, 6]
    # A range may begin after the aborted records, yet before the marker that ends them.
    assert [row["offset"] for row in decoded(data, first=3, aborted=((7, 0),))] == [3, 6]


def test_header_names_that_are_no_text_are_replaced_as_java_does() -> None:
    data = build_batch([Record(0, 0, None, b"", [("ab", b"x")])])
    position = bytes(data).index(b"ab")
    data[position] = 0xFF
    (row,) = decoded(data, check_crcs=False)
    assert row["headers"] == [{"key": "\ufffdb", "value": b"x"}]


def test_a_wrong_crc_is_noticed_unless_nobody_wants_to_know() -> None:
    data = build_batch([Record(5, 0, None, b"abc")])
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="orders-3: wrong CRC of the batch at offset 5"):
        decoded(data)
    assert len(decoded(data, check_crcs=False)) == 1


def test_old_formats_are_refused_by_name() -> None:
    data = build_batch([Record(0, 0, None, b"abc")])
    data[16] = 1
    with pytest.raises(InvalidRecord, match="magic 2"):
        decoded(data)


def test_a_decompression_bomb_costs_its_cap_at_most() -> None:
    data = build_batch([Record(0, 0, None, bytes(10_000_000))], Codec.ZSTD)
    with pytest.raises(BatchError, match="exceeds the limit"):
        decoded(data, max_decompressed=100_000)


def test_a_timestamp_that_is_no_time_is_refused() -> None:
    data = build_batch([Record(0, 1 << 62, None, b"")])
    with pytest.raises(InvalidRecord, match="not a time"):
        decoded(data)


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_damaged_records_are_decoded_as_the_plain_decoder_does_or_refused(
    data: st.DataObject,
) -> None:
    codec = data.draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.SNAPPY]))
    batch = build_batch(data.draw(record_lists()), codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(17, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        rows = decoded(batch, check_crcs=False)
    except (BatchError, OverflowError, ValueError):
        return
    # What was taken must be what the bytes say; the CRC is put right for the plain decoder.
    try:
        header = check_batch(batch, from_producer=False)
        plain = list(records_of(assemble(header, batch[61:])))
    except (BatchError, UnicodeDecodeError):
        return
    if not header.is_control:
        assert [row["offset"] for row in rows] == [record.offset for record in plain]


sections = record_lists().map(lambda records: bytes(build_batch(records)[61:]))


@settings(max_examples=EXAMPLES)
@given(
    st.binary(max_size=400) | sections,
    st.none() | st.tuples(st.integers(-5, 500), st.integers(-5, 500)),
    st.integers(-3, 100),
    st.integers(0, 100),
)
def test_the_kernel_never_leaves_its_buffers(
    data: bytes, place: tuple[int, int] | None, said: int, rows: int
) -> None:
    """Guard bytes after every line of output, and a table that lies about what is where."""
    start, end = place or (0, len(data))
    size = max(end - start, 0) if 0 <= start <= end <= len(data) else len(data)
    rows = min(rows, size // 7)
    guard = 64
    # Per output: what may be written of each line. Only `there` says how many rows there are.
    used = {
        "longs": rows, "ints": rows + 1, "there": rows, "key_data": size, "value_data": size,
        "header_ends": size // 2 + 1, "header_data": size, "header_there": size // 2,
    }  # fmt: skip
    kinds = {"longs": np.int64, "ints": np.int32, "header_ends": np.int32}
    lines = {"longs": 2, "ints": 4, "there": 3, "header_ends": 2, "header_data": 2}
    outputs: dict[str, Any] = {}
    for name, width in used.items():
        whole = np.full((lines.get(name, 1), width + guard), 77, kinds.get(name, np.uint8))
        outputs[name] = whole if name in lines else whole[0]
    there = np.full(3 * rows + guard, 77, np.uint8)
    outputs["there"] = there[: 3 * rows].reshape(3, rows)
    table = np.array([[start, end, said, 0, 1 << 40, 0, 0, 0, 0, 0]], np.int64)
    cursor = np.zeros(kernels.CURSOR_WIDTH, np.int64)
    buffer = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    status = kernels.decode_batches(
        buffer, table, -FOREVER, FOREVER, cursor,
        outputs["longs"], outputs["ints"], outputs["there"],
        True, outputs["key_data"], True, outputs["value_data"],
        True, outputs["header_ends"], outputs["header_data"], outputs["header_there"],
    )  # fmt: skip
    assert status in range(8)
    assert (there[3 * rows :] == 77).all()
    for name, whole in outputs.items():
        assert (whole[..., used[name] :] == 77).all(), name


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_batches_or_refused(data: bytes) -> None:
    try:
        decoded(data, WITHOUT_HEADERS)
    except BatchError:
        pass
