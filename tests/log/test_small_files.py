"""Indexes, snapshots, checkpoints, epochs and properties: what is written can be read again, and
nothing else can."""

from __future__ import annotations

import struct
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.epochs import LeaderEpochs
from moldau.log.errors import CorruptFile
from moldau.log.files.checkpoint import read_offsets, write_offsets
from moldau.log.files.open_files import FilePool
from moldau.log.files.properties import (
    encode_topic_id,
    read_properties,
    read_topic_id,
    write_properties,
)
from moldau.log.producers.snapshot_format import decode_snapshot, encode_snapshot
from moldau.log.producers.states import ProducerStates
from moldau.log.segments.index import OffsetIndex
from moldau.log.segments.time_index import TimeIndex
from moldau.records.record import EndMarker

# Indexes


def rising(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    entries, first, second = [], 0, 0
    for one, two in steps:
        first, second = first + one, second + two
        entries.append((first, second))
    return entries


some_steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99)), max_size=700)


@given(some_steps, st.data())
def test_an_offset_index_finds_what_a_list_finds(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = OffsetIndex(f"{folder}/x.index", FilePool(4), 1000)
        entries = [(1000 + delta, position) for delta, position in rising(steps)]
        stored = data.draw(st.integers(0, len(entries)))
        for number, (last, position) in enumerate(entries):
            index.append(last, position)
            if number + 1 == stored:
                index.write_tail()
        offset = data.draw(st.integers(990, 1000 + 10 * (len(entries) + 1)))
        expected = [entry for entry in entries if entry[0] <= offset]
        assert index.lookup(offset)[:2] == (expected[-1] if expected else (-1, 0))
        limit = data.draw(st.integers(0, 100 * (len(entries) + 1)))
        fitting = [number for number, entry in enumerate(entries) if entry[1] <= limit]
        hint = data.draw(st.integers(0, fitting[-1])) if fitting else 0
        found = (*entries[fitting[-1]], fitting[-1]) if fitting else (-1, 0, 0)
        assert index.boundary(limit, hint) == found
        index.truncate_to(offset)
        index.write_tail()
        again = OffsetIndex(f"{folder}/x.index", FilePool(4), 1000)
        again.load()
        again.check(2**31 - 1)
        kept = [entry for entry in entries if entry[0] < offset]
        assert [again.get(number) for number in range(again.count)] == [
            (last - 1000, position) for last, position in kept
        ]


def test_index_files_have_kafkas_layout(tmp_path: Path) -> None:
    offsets = OffsetIndex(f"{tmp_path}/x.index", FilePool(4), 100)
    offsets.append(107, 4200)
    offsets.write_tail()
    assert (tmp_path / "x.index").read_bytes() == struct.pack(">ii", 7, 4200)
    times = TimeIndex(f"{tmp_path}/x.timeindex", FilePool(4), 100)
    times.append(1_700_000_000_000, 107)
    times.append(1_700_000_000_000, 109)
    times.write_tail()
    assert (tmp_path / "x.timeindex").read_bytes() == struct.pack(">qi", 1_700_000_000_000, 7)


@given(st.binary(max_size=100))
def test_arbitrary_index_files_are_corrupt_or_readable(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.index")
        path.write_bytes(data)
        offsets = OffsetIndex(str(path), FilePool(2), 5)
        times = TimeIndex(str(path), FilePool(2), 5)
        try:
            offsets.load()
            offsets.check(1000)
            offsets.lookup(50)
            offsets.boundary(90, 0)
        except CorruptFile:
            pass
        try:
            times.load()
            times.check()
            times.lookup(50)
        except CorruptFile:
            pass


# Producer snapshots


def some_states() -> ProducerStates:
    states = ProducerStates(40)
    states.note(7, 0, 0, 0, 4, 111, False, 111)
    states.note(7, 0, 5, 5, 2, 222, False, 222)
    states.note(9, 3, 100, 20, 0, 333, True, 333)
    states.note_marker(8, 1, 30, 444, EndMarker(True, 6))
    return states


def test_a_snapshot_keeps_each_producers_batches_the_last_one_last() -> None:
    again = decode_snapshot(encode_snapshot(some_states()), "x.snapshot", 40)
    seven, eight, nine = again.get(7), again.get(8), again.get(9)
    assert seven is not None
    assert eight is not None
    assert nine is not None
    assert seven.batches == ((4, 4, 4, 111), (7, 7, 2, 222))
    assert (eight.epoch, eight.coordinator_epoch, eight.batches) == (1, 6, ())
    assert nine.transaction_start == 20
    assert again.first_unstable() == 20
    assert again.end == 40


def test_a_snapshot_has_kafkas_layout() -> None:
    states = ProducerStates()
    states.note(7, 2, 10, 100, 4, 999, False, 999)
    data = encode_snapshot(states)
    assert struct.unpack(">h", data[:2]) == (1,)
    assert struct.unpack(">i", data[6:10]) == (1,)
    assert struct.unpack(">qhiqiqiq", data[10:]) == (7, 2, 14, 104, 4, 999, -1, -1)


@given(st.binary(max_size=120))
def test_arbitrary_snapshots_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_snapshot(data, "x.snapshot", 0)


@given(st.data())
def test_a_damaged_snapshot_is_corrupt(data: st.DataObject) -> None:
    content = bytearray(encode_snapshot(some_states()))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptFile):
        decode_snapshot(bytes(content), "x.snapshot", 0)


def test_producer_changes_can_be_rolled_back_until_they_are_settled() -> None:
    states = some_states()
    states.settle()
    before = states.producers
    states.note(7, 0, 8, 40, 0, 555, False, 555)
    states.note(10, 0, 0, 41, 0, 555, True, 555)
    states.note_marker(9, 3, 42, 555, EndMarker(False, 0))
    states.rollback(40)
    assert states.producers == before
    assert states.first_unstable() == 20


# Leader epochs


def test_epochs_answer_as_kafka_does() -> None:
    epochs = LeaderEpochs([(2, 10), (5, 30), (6, 40)])
    assert epochs.end_of(1, 99) == (1, 10)
    assert epochs.end_of(2, 99) == (2, 30)
    assert epochs.end_of(4, 99) == (2, 30)
    assert epochs.end_of(6, 99) == (6, 99)
    assert epochs.end_of(7, 99) == (-1, -1)
    assert epochs.end_of(-1, 99) == (-1, -1)
    assert epochs.end_of(-2, 99) == (-2, 10)
    assert LeaderEpochs().end_of(0, 99) == (-1, -1)
    assert [epochs.epoch_at(offset) for offset in (5, 10, 29, 30, 99)] == [-1, 2, 2, 5, 6]


def test_epochs_are_cut_at_both_ends() -> None:
    epochs = LeaderEpochs([(2, 10), (5, 30), (6, 40)])
    epochs.truncate_start(35)
    assert epochs.entries == [(5, 35), (6, 40)]
    epochs.truncate_end(40)
    assert epochs.entries == [(5, 35)]
    assert epochs.latest == 5
    assert epochs.dirty


def test_a_contradicting_epoch_replaces_later_ones() -> None:
    epochs = LeaderEpochs([(2, 10), (5, 30)])
    epochs.assign(4, 20)
    assert epochs.entries == [(2, 10), (4, 20)]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20))
def test_epochs_come_back_from_their_file(steps: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(rising(steps))
    assert LeaderEpochs.decode(epochs.encode(), "x").entries == epochs.entries


@given(st.binary(max_size=60) | st.text("0123456789 \n-", max_size=40).map(str.encode))
def test_arbitrary_epoch_files_are_corrupt_or_readable(data: bytes) -> None:
    try:
        LeaderEpochs.decode(data, "x")
    except CorruptFile:
        pass


# Checkpoints

topic_names = st.text("abcXYZ019._-", min_size=1, max_size=20)


@given(st.dictionaries(st.tuples(topic_names, st.integers(0, 9999)), st.integers(0, 2**62)))
def test_a_checkpoint_comes_back(offsets: dict[tuple[str, int], int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_offsets(f"{folder}/c", offsets)
        assert read_offsets(f"{folder}/c") == offsets


def test_a_checkpoint_has_kafkas_layout(tmp_path: Path) -> None:
    write_offsets(f"{tmp_path}/c", {("a", 0): 5, ("b", 12): 7})
    assert (tmp_path / "c").read_text() == "0\n2\na 0 5\nb 12 7\n"
    assert read_offsets(f"{tmp_path}/missing") is None


@given(st.binary(max_size=60) | st.text("01 \na", max_size=40).map(str.encode))
def test_arbitrary_checkpoints_are_corrupt_or_readable(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "c").write_bytes(data)
        try:
            read_offsets(f"{folder}/c")
        except CorruptFile:
            pass


# Properties


@given(st.uuids())
def test_a_topic_id_comes_back(topic_id: uuid.UUID) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "p").write_bytes(encode_topic_id(topic_id))
        assert read_topic_id(f"{folder}/p") == topic_id


def test_partition_metadata_has_kafkas_layout() -> None:
    topic_id = uuid.UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
    assert encode_topic_id(topic_id) == b"version: 0\ntopic_id: Dx4tPEtaaXiHlqW0w9Lh8A"


@given(st.binary(max_size=60) | st.text("version:topic_d \n0A=", max_size=60).map(str.encode))
def test_arbitrary_properties_raise_corrupt_file_only(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "p").write_bytes(data)
        read_topic_id(f"{folder}/p")
        try:
            read_properties(f"{folder}/p")
        except CorruptFile:
            pass


def test_properties_come_back(tmp_path: Path) -> None:
    write_properties(f"{tmp_path}/meta.properties", {"version": "1", "cluster.id": "a=b"})
    assert read_properties(f"{tmp_path}/meta.properties") == {"version": "1", "cluster.id": "a=b"}
    assert read_properties(f"{tmp_path}/none") == {}
