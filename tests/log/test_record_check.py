"""Batches that are compressed anew on their way into a log, as values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.log.config import LogConfig
from moldau.log.record_check import RecordCheck
from moldau.records.batch import check_batch, read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, records_of
from tests.records.test_record import some_records


@given(some_records(), st.sampled_from(Codec), st.sampled_from(Codec))
def test_another_codec_changes_nothing_else(
    records: list[Record], before: Codec, after: Codec
) -> None:
    data = build_batch(records, before, producer_id=5, producer_epoch=1, base_sequence=3)
    name = "uncompressed" if after is Codec.NONE else after.name.lower()
    out = RecordCheck(memoryview(data), LogConfig(compression_type=name)).finish()
    header = check_batch(out)
    assert header.codec == after
    assert header[6:] == read_header(data)[6:]
    assert list(records_of(out)) == records
