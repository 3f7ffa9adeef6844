"""Records of `__transaction_state`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moldau.broker.coordination.records import InvalidRecord
from moldau.broker.coordination.transactions.records import key_of, read_key, read_value, value_of
from moldau.broker.coordination.transactions.transaction import (
    NOBODY,
    Identity,
    State,
    Transaction,
)

int16, int32, int64 = (st.integers(-(2**n), 2**n - 1) for n in (15, 31, 63))
identities = st.builds(Identity, st.integers(0, 2**63 - 1), st.integers(0, 32767))
partitions = st.frozensets(st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 2**31 - 1)))


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(State))
    return Transaction(
        draw(st.text(max_size=20)),
        draw(identities),
        state,
        draw(int32),
        draw(int64),
        draw(int64),
        frozenset() if state is State.EMPTY else draw(partitions),
        draw(st.integers(0, 2)),
        draw(st.integers(-1, 2**63 - 1)),
        draw(st.one_of(st.just(NOBODY), identities)),
    )


@given(transactions())
def test_a_transaction_comes_back_as_it_was_written(transaction: Transaction) -> None:
    assert read_key(key_of(transaction.id)) == transaction.id
    assert read_value(transaction.id, value_of(transaction)) == transaction


def test_the_bytes_are_those_that_kafka_writes() -> None:
    """Read from `TransactionLogValue.json`: version 1, with the tags that are not at a default."""
    transaction = Transaction(
        "t",
        Identity(7, 3),
        State.ONGOING,
        60_000,
        1_000,
        900,
        frozenset({("a", 1), ("a", 0)}),
        2,
        7,
    )
    assert key_of("t") == bytes.fromhex("0000 0001 74")
    assert value_of(transaction) == bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "02 0261 03 00000000 00000001 00"
        "00000000000003e8 0000000000000384"
        "02 00 08 0000000000000007 02 02 0002"
    )


def test_version_0_of_older_brokers_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 04"
        "00000001 0001 61 00000001 00000005"
        "00000000000003e8 0000000000000384"
    )
    assert read_value("t", value) == Transaction(
        "t", Identity(7, 3), State.COMPLETE_COMMIT, 60_000, 1_000, 900, frozenset({("a", 5)})
    )
    empty = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 00 ffffffff 00000000000003e8 ffffffffffffffff"
    )
    assert read_value("t", empty).partitions == frozenset()


def test_kafka_leaves_out_the_epoch_of_the_next_producer_id_where_it_is_0() -> None:
    value = bytes.fromhex(
        "0001 0000000000000007 7fff 0000ea60 02 01"
        "00000000000003e8 0000000000000384 01 01 08 0000000000000009"
    )
    assert read_value("t", value).next == Identity(9, 0)


def test_keys_of_later_versions_are_left_alone_and_unknown_states_are_refused() -> None:
    assert read_key(bytes.fromhex("0001 0001 74")) is None
    with pytest.raises(InvalidRecord):
        read_key(bytes.fromhex("ffff 0001 74"))
    broken = bytearray(value_of(Transaction("t", Identity(7, 3), State.EMPTY, 1, 2)))
    broken[16] = 8
    with pytest.raises(InvalidRecord):
        read_value("t", bytes(broken))


@given(st.binary(max_size=80))
@example(b"\x00\x01" + bytes(15) + b"\xff\xff\xff\xff\x0f")
def test_garbage_is_no_record_and_costs_nothing(data: bytes) -> None:
    for read in (read_key, lambda data: read_value("t", data)):
        with contextlib.suppress(InvalidRecord):
            read(data)
