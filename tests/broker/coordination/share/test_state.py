"""Share-group state and its records."""

from __future__ import annotations

import contextlib
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.coordination.records import InvalidRecord
from moldau.broker.coordination.share.batches import StateBatch
from moldau.broker.coordination.share.records import (
    UpdateRecord,
    read_record,
    snapshot_record,
    tombstone,
    update_record,
)
from moldau.broker.coordination.share.state import ShareKey, ShareState, Update, parse_key

KEY = ShareKey("queue:1", UUID(int=0x1234), 3)

batches = st.builds(
    lambda first, size, state, deliveries: StateBatch(first, first + size, state, deliveries),
    st.integers(0, 60), st.integers(0, 15), st.sampled_from([0, 2, 4]), st.integers(1, 5),
)  # fmt: skip
updates = st.builds(
    Update,
    st.integers(-1, 9), st.integers(-1, 70), st.integers(-1, 9),
    st.lists(batches, max_size=5).map(tuple),
)  # fmt: skip


@given(st.lists(updates, max_size=12))
def test_updates_are_laid_over_each_other(changes: list[Update]) -> None:
    state = ShareState(0, 0, 0, -1)
    model: dict[int, tuple[int, int]] = {}
    for update in changes:
        state.apply(update)
        for batch in update.batches:
            for offset in range(batch.first, batch.last + 1):
                new = batch.deliveries, batch.state
                model[offset] = max(model.get(offset, new), new)
        model = {offset: said for offset, said in model.items() if offset >= state.start}
        flat = {
            offset: (batch.deliveries, batch.state)
            for batch in state.batches
            for offset in range(batch.first, batch.last + 1)
        }
        assert flat == model
        for before, after in zip(state.batches, state.batches[1:], strict=False):
            assert before.last < after.first
            assert before.last + 1 < after.first or before[2:] != after[2:]


@given(st.lists(updates, min_size=1, max_size=5))
def test_what_is_written_is_read_back(changes: list[Update]) -> None:
    state = ShareState(5, 4, 3, 2, 1, 1000, 2000)
    for update in changes:
        state.apply(update)
        assert read_record(*update_record(KEY, 5, update)) == (KEY, UpdateRecord(5, update))
    found = read_record(*snapshot_record(KEY, state))
    assert found is not None
    key, read = found
    assert key == KEY
    assert isinstance(read, ShareState)
    for name in ("snapshot_epoch", "state_epoch", "leader_epoch", "start", "finished", "batches"):
        assert getattr(read, name) == getattr(state, name)
    assert read_record(*tombstone(KEY)) == (KEY, None)


@given(st.binary(max_size=80), st.binary(max_size=120))
def test_bytes_that_are_no_record_are_found_out(key: bytes, value: bytes) -> None:
    with contextlib.suppress(InvalidRecord):
        read_record(key, value)
    for kind in (b"\x00\x00", b"\x00\x01"):
        with contextlib.suppress(InvalidRecord):
            read_record(kind + b"\x00\x01g" + bytes(20), b"\x00\x00" + value)


def test_the_bytes_are_those_that_kafka_writes() -> None:
    """Read from `ShareSnapshotValue.json` and `ShareUpdateValue.json`."""
    state = ShareState(1, 2, 3, 4, 1, 5, 6, [StateBatch(5, 7, 2, 1)])
    key, value = snapshot_record(ShareKey("g", UUID(int=1), 2), state)
    assert key == bytes.fromhex("0000 0001 67 00000000000000000000000000000001 00000002")
    assert value == bytes.fromhex(
        "0000 00000001 00000002 00000003 0000000000000004 0000000000000005 0000000000000006"
        "02 0000000000000005 0000000000000007 02 0001 00 01 00 04 00000001"
    )
    key, value = update_record(ShareKey("g", UUID(int=1), 2), 1, Update(3, -1, -1))
    assert key == bytes.fromhex("0001 0001 67 00000000000000000000000000000001 00000002")
    assert value == bytes.fromhex("0000 00000001 00000003 ffffffffffffffff 01 00")


def test_a_key_is_found_by_its_text() -> None:
    assert str(KEY) == "queue:1:AAAAAAAAAAAAAAAAAAASNA:3"
    assert parse_key(str(KEY)) == KEY
    for text in ("", "g", "g:AAAA:1", "g:AAAAAAAAAAAAAAAAAAASNA:x", ":AAAAAAAAAAAAAAAAAAASNA:1"):
        assert parse_key(text) is None


def test_a_write_that_comes_late_takes_nothing_back() -> None:
    """Its answer was lost, it was tried again, and the first attempt arrives after later writes."""
    state = ShareState(0, 0, 0, 0)
    late = Update(1, 2, 0, (StateBatch(4, 5, 2, 1),))
    state.apply(late)
    state.apply(Update(1, 8, 0, (StateBatch(9, 9, 2, 1),)))
    state.apply(late)
    assert state.start == 8
    assert state.batches == [StateBatch(9, 9, 2, 1)]
