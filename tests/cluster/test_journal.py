from __future__ import annotations

import uuid
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.journal import (
    HEADING,
    DamagedJournal,
    encode_changes,
    encode_line,
    read_journal,
)
from moldau.cluster.state.access import (
    Acl,
    AclsChanged,
    QuotasChanged,
    ResourcePattern,
    ScramChanged,
    ScramCredential,
)
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    ClusterCreated,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.cluster.state.topics import PartitionState, Topic

ids = st.integers(0, 2**31 - 1)
texts = st.text(max_size=20)
configs = st.dictionaries(texts, texts, max_size=3)
partitions = st.builds(
    PartitionState,
    st.lists(ids, max_size=3).map(tuple),
    st.lists(ids, max_size=3).map(tuple),
    ids,
    ids,
)
changes: st.SearchStrategy[AnyChange] = st.one_of(
    st.builds(ClusterCreated, texts, st.none() | ids),
    st.builds(
        TopicCreated,
        st.builds(Topic, texts, st.uuids(), st.lists(partitions, max_size=4).map(tuple), configs),
    ),
    st.builds(TopicDeleted, texts, st.uuids()),
    st.builds(PartitionsAdded, texts, ids, st.lists(partitions, max_size=4).map(tuple)),
    st.builds(PartitionsChanged, texts, st.dictionaries(ids, partitions, max_size=3)),
    st.builds(TopicConfigured, texts, configs),
    st.builds(BrokerConfigured, st.none() | ids, configs),
    st.builds(
        AclsChanged,
        st.builds(ResourcePattern, ids, texts, ids),
        st.lists(st.builds(Acl, texts, texts, ids, ids), max_size=3).map(tuple),
    ),
    st.builds(
        QuotasChanged,
        st.lists(st.tuples(texts, st.none() | texts), max_size=3).map(tuple),
        st.dictionaries(texts, st.floats(0, 1e18), max_size=3),
    ),
    st.builds(
        ScramChanged,
        texts,
        st.dictionaries(
            texts, st.builds(ScramCredential, st.binary(), st.binary(), st.binary(), ids)
        ),
    ),
    st.builds(ProducerIdsAllocated, st.integers(0, 2**63 - 1)),
)
batches = st.lists(st.lists(changes, min_size=1, max_size=3), min_size=1, max_size=5)

Batches = Sequence[Sequence[AnyChange]]


def line(sequence: int, write: int, batch: Sequence[AnyChange]) -> bytes:
    return encode_line(sequence, write, encode_changes(batch))


def journal(written: Batches, *, first: int = 0) -> bytes:
    """The bytes of batches that were each written and flushed by themselves."""
    return HEADING + b"".join(
        line(first + place, first + place, batch) for place, batch in enumerate(written)
    )


def some(count: int) -> list[list[AnyChange]]:
    return [[ProducerIdsAllocated(place + 1)] for place in range(count)]


@given(batches, st.integers(0, 10**9))
def test_what_is_written_is_read_back(written: Batches, first: int) -> None:
    data = journal(written, first=first)
    read = read_journal(data)
    assert read.batches == list(written)
    assert read.length == len(data)
    assert read.next_sequence == first + len(written)


@given(batches, st.data())
def test_a_torn_last_write_is_left_out_and_all_before_it_kept(
    written: Batches, data: st.DataObject
) -> None:
    whole = journal(written)
    torn_line = line(len(written), len(written), [ProducerIdsAllocated(1)])
    kept = data.draw(st.integers(0, len(torn_line) - 1))
    read = read_journal(whole + torn_line[:kept])
    assert read.batches == list(written)
    assert read.length == len(whole)


@given(batches, st.binary(max_size=200))
def test_garbage_at_the_end_is_left_out(written: Batches, garbage: bytes) -> None:
    whole = journal(written)
    read = read_journal(whole + garbage)
    assert read.batches == list(written)
    assert read.length == len(whole)


@given(batches, st.data())
def test_a_flipped_byte_is_never_believed(written: Batches, data: st.DataObject) -> None:
    whole = bytearray(journal(written))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        read = read_journal(bytes(whole))
    except DamagedJournal:
        return
    assert read.batches == list(written)[: len(read.batches)]
    assert len(read.batches) >= len(written) - 1


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(garbage: bytes) -> None:
    for data in (garbage, HEADING + garbage):
        with pytest.raises(DamagedJournal):
            read_journal(data)


def test_a_damaged_line_that_later_writes_build_on_is_refused() -> None:
    lines = journal(some(4)).splitlines(keepends=True)
    lines[2] = lines[2].replace(b"Allocated", b"Allocatee")
    with pytest.raises(DamagedJournal, match=r"line 1 .* later changes build on it"):
        read_journal(b"".join(lines))


def test_a_missing_line_is_refused() -> None:
    lines = journal(some(4)).splitlines(keepends=True)
    del lines[2]
    with pytest.raises(DamagedJournal, match="line 1"):
        read_journal(b"".join(lines))


def test_a_hole_in_the_last_write_costs_only_that_write() -> None:
    kept = journal(some(2))
    torn = [line(place, 2, some(1)[0]) for place in (2, 3, 4)]
    hole = bytes(len(torn[0]) - 1) + b"\n"
    read = read_journal(kept + hole + torn[1] + torn[2])
    assert read.length == len(kept)
    assert read.next_sequence == 2


def test_an_intact_line_that_is_not_understood_is_refused() -> None:
    unknown = line(1, 1, [ClusterCreated("x")]).replace(b"ClusterCreated", b"FromTheFuture!")
    content = unknown[9:-1]
    altered = b"%08x %s\n" % (zlib.crc32(content), content)
    with pytest.raises(DamagedJournal, match="line 1 is invalid"):
        read_journal(journal(some(1)) + altered)


def test_a_batch_is_one_line_whatever_its_texts_hold() -> None:
    topic = Topic("t", uuid.uuid4(), (), {"a\nb": "c\r\n\u2028"})
    assert line(0, 0, [TopicCreated(topic)]).count(b"\n") == 1
