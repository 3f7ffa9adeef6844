"""The checker passes what a right cluster shows, and sees each of the anomalies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.scenarios.ledger import TopicPartition
from tests.transactions.checker import Kind, check
from tests.transactions.history import History, Outcome, Reading, Seen, Sent, Transaction, Value
from tests.transactions.model import Model

_STEPS = 60
PLACE, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)
_seeds = st.integers(0, 2**32)


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history)}


@given(_seeds)
def test_a_right_cluster_shows_no_anomaly(seed: int) -> None:
    history = Model(random.Random(seed)).play(_STEPS)
    assert check(history) == []


# Each takes a right history and the dice, and puts one anomaly in; None if there is no room for it.


def _committed(history: History) -> list[Reading]:
    return [each for each in history.readings if each.is_committed]


def _writer(history: History, value: Value) -> Transaction:
    return next(each for each in history.transactions if value[:2] == (each.producer, each.number))


def _drop(history: History, value: Value) -> None:
    """Let no reader of committed records have seen a value, nor any transaction."""
    for reading in _committed(history):
        reading.seen = [seen for seen in reading.seen if seen.value != value]
    for transaction in history.transactions:
        transaction.read = [seen for seen in transaction.read if seen.value != value]


def _some_seen(history: History, dice: random.Random) -> Seen | None:
    found = history.readings[0].seen
    return dice.choice(found) if found else None


def abort_what_was_seen(history: History, dice: random.Random) -> Kind | None:
    seen = _some_seen(history, dice)
    if seen is None:
        return None
    _writer(history, seen.value).outcome = Outcome.ABORTED
    return Kind.ABORTED_READ


def commit_after_it_was_seen(history: History, dice: random.Random) -> Kind | None:
    seen = _some_seen(history, dice)
    if seen is None:
        return None
    _writer(history, seen.value).commit_at = seen.at + 0.001
    return Kind.EARLY_READ


def show_one_reader_another_value(history: History, dice: random.Random) -> Kind | None:
    seen, other = _some_seen(history, dice), _some_seen(history, dice)
    if seen is None or other is None or seen.value == other.value:
        return None
    found = history.readings[2].seen
    if seen not in [replaced._replace(at=seen.at) for replaced in found]:
        return None
    at = next(i for i, each in enumerate(found) if each[:3] == seen[:3])
    found[at] = found[at]._replace(value=other.value)
    return Kind.INCONSISTENT


def lose_a_write(history: History, dice: random.Random) -> Kind | None:
    told = [
        sent.value
        for transaction in history.transactions
        if transaction.outcome is Outcome.COMMITTED
        for sent in transaction.sent
        if sent.place not in history.compacted
    ]
    if not told:
        return None
    _drop(history, dice.choice(told))
    return Kind.LOST_WRITE


def write_it_twice(history: History, dice: random.Random) -> Kind | None:
    seen = _some_seen(history, dice)
    if seen is None:
        return None
    history.readings[2].seen.append(seen._replace(offset=1 << 20))
    return Kind.DUPLICATE


def tear(history: History, dice: random.Random) -> Kind | None:
    whole = [
        each
        for each in history.transactions
        if each.outcome is not Outcome.ABORTED
        and len(plain := [sent for sent in each.sent if sent.place not in history.compacted]) > 1
        and all(
            any(sent.value == seen.value for seen in history.readings[2].seen) for sent in plain
        )
    ]
    if not whole:
        return None
    torn = dice.choice(whole)
    torn.outcome = Outcome.UNKNOWN
    plain = [sent for sent in torn.sent if sent.place not in history.compacted]
    lost = dice.choice(plain)
    lost.is_acknowledged = True
    _drop(history, lost.value)
    return Kind.TORN


def _readers(history: History) -> list[Transaction]:
    return [
        each for each in history.transactions if each.read and each.outcome is Outcome.COMMITTED
    ]


def read_what_was_read(history: History, dice: random.Random) -> Kind | None:
    readers = _readers(history)
    others = [each for each in history.transactions if each.outcome is Outcome.COMMITTED]
    if not readers or len(others) < 2:
        return None
    first = dice.choice(readers)
    second = dice.choice([each for each in others if each is not first])
    second.read = [*second.read, dice.choice(first.read)]
    return Kind.TORN


def read_in_a_circle(history: History, dice: random.Random) -> Kind | None:
    readers = _readers(history)
    if not readers:
        return None
    second = dice.choice(readers)
    first = _writer(history, dice.choice(second.read).value)
    own = [sent for sent in second.sent if sent.offset is not None]
    if first is second or not own:
        return None
    sent = dice.choice(own)
    first.read = [*first.read, Seen(sent.place, sent.offset or 0, sent.value)]
    return Kind.CIRCULAR


def go_back(history: History, dice: random.Random) -> Kind | None:
    reading = dice.choice(history.readings)
    seen = reading.seen
    pairs = [
        (i, j)
        for j in range(len(seen))
        for i in range(j)
        if seen[i].place == seen[j].place and seen[i].offset < seen[j].offset
    ]
    if not pairs:
        return None
    i, j = dice.choice(pairs)
    seen[i], seen[j] = seen[j], seen[i]
    return Kind.DISORDER


def skip(history: History, dice: random.Random) -> Kind | None:
    reading = history.readings[dice.choice([0, 2])]
    last: dict[TopicPartition, int] = {}
    for seen in reading.seen:
        last[seen.place] = seen.offset
    followed = [
        at
        for at, seen in enumerate(reading.seen)
        if seen.offset < last[seen.place] and seen.place not in history.compacted
        # Else it could not be told from one that was not committed.
        and any(
            seen.value == again.value
            for other in _committed(history)
            if other is not reading
            for again in other.seen
        )
    ]  # fmt: skip
    if not followed:
        return None
    del reading.seen[dice.choice(followed)]
    return Kind.DISORDER


def send_in_another_order(history: History, dice: random.Random) -> Kind | None:
    pairs: list[tuple[Sent, Sent]] = []
    for transaction in history.transactions:
        known = [sent for sent in transaction.sent if sent.offset is not None]
        pairs += [(a, b) for a in known for b in known if a is not b and a.place == b.place]
    if not pairs:
        return None
    first, second = dice.choice(pairs)
    swapped = {first.value: second.value, second.value: first.value}
    first.offset, second.offset = second.offset, first.offset
    readings = [(each.seen, each) for each in history.readings]
    for found, reading in readings:
        reading.seen = [seen._replace(value=swapped.get(seen.value, seen.value)) for seen in found]
    for transaction in history.transactions:
        transaction.read = [
            seen._replace(value=swapped.get(seen.value, seen.value)) for seen in transaction.read
        ]
    return Kind.DISORDER


INJECTIONS: list[Callable[[History, random.Random], Kind | None]] = [
    abort_what_was_seen,
    commit_after_it_was_seen,
    show_one_reader_another_value,
    lose_a_write,
    write_it_twice,
    tear,
    read_what_was_read,
    read_in_a_circle,
    go_back,
    skip,
    send_in_another_order,
]


@pytest.mark.parametrize("inject", INJECTIONS, ids=lambda each: each.__name__)
@given(seed=_seeds)
def test_an_anomaly_in_a_right_history_is_found(
    inject: Callable[[History, random.Random], Kind | None], seed: int
) -> None:
    dice = random.Random(seed)
    history = Model(dice).play(_STEPS)
    expected = inject(history, dice)
    assume(expected is not None)
    assert expected in kinds(history)


# By hand: two transactions of one producer, the smallest history of each kind.


def _history(first: Outcome, second: Outcome, *offsets: int) -> History:
    """Two transactions that wrote to offsets 0, 1 and 3, 4, and a reader that saw some of them."""
    history = History(is_whole=True)
    reading = Reading("reader", True)
    history.readings.append(reading)
    by_offset = {}
    for number, (outcome, own) in enumerate(((first, (0, 1)), (second, (3, 4)))):
        transaction = Transaction("p", number, outcome, commit_at=number)
        history.transactions.append(transaction)
        for offset in own:
            sent = transaction.write(PLACE)
            sent.offset, sent.is_acknowledged = offset, True
            by_offset[offset] = sent.value
    reading.seen = [Seen(PLACE, offset, by_offset[offset], 10.0) for offset in offsets]
    return history


def test_what_may_be_is_no_anomaly() -> None:
    committed, aborted, unknown = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN
    assert check(_history(committed, aborted, 0, 1)) == []
    assert check(_history(unknown, committed, 3, 4)) == []
    assert check(_history(unknown, committed, 0, 1, 3, 4)) == []
    early = _history(committed, committed)
    early.is_whole = False
    assert check(early) == []


def test_a_committed_transaction_of_which_half_is_seen_is_torn_and_lost() -> None:
    history = _history(Outcome.COMMITTED, Outcome.COMMITTED, 0, 3, 4)
    # The reader jumped over offset 1, too.
    assert kinds(history) == {Kind.TORN, Kind.LOST_WRITE, Kind.DISORDER}


def test_the_tail_may_be_unread_unless_the_history_is_whole() -> None:
    history = _history(Outcome.COMMITTED, Outcome.COMMITTED, 0, 1)
    assert kinds(history) == {Kind.LOST_WRITE}
    history.is_whole = False
    assert check(history) == []


def test_a_value_that_nobody_sent_is_noticed() -> None:
    history = _history(Outcome.COMMITTED, Outcome.ABORTED, 0, 1)
    history.readings[0].seen.append(Seen(PLACE, 7, Value("q", 0, 0)))
    history.readings[0].seen.append(Seen(OTHER, 0, Value("p", 0, 0)))
    assert kinds(history) == {Kind.STRANGE}


def test_retention_and_compaction_may_take_values_away() -> None:
    history = _history(Outcome.COMMITTED, Outcome.COMMITTED, 3, 4)
    assert Kind.LOST_WRITE in kinds(history)
    assert check(replace(history, starts={PLACE: 2})) == []
    for transaction in history.transactions:
        for sent, key in zip(transaction.sent, (b"a", b"b"), strict=True):
            sent.key = key
    compacted = replace(history, compacted={PLACE})
    assert check(compacted) == []
    compacted.transactions[0].sent[0].key = b"c"
    assert kinds(compacted) == {Kind.LOST_WRITE, Kind.DISORDER}


def test_a_group_that_jumps_over_an_input_is_noticed() -> None:
    history = _history(Outcome.COMMITTED, Outcome.COMMITTED, 0, 1, 3, 4)
    seen = history.readings[0].seen
    for number, read in enumerate((seen[0], seen[2])):
        copy = Transaction("copy", number, Outcome.COMMITTED, 1.0, group="group", read=[read])
        history.transactions.append(copy)
    assert kinds(history) == {Kind.TORN}


def test_a_group_that_stands_elsewhere_than_it_read_to_is_noticed() -> None:
    history = _history(Outcome.COMMITTED, Outcome.COMMITTED, 0, 1, 3, 4)
    read = history.readings[0].seen[:2]
    history.transactions.append(Transaction("copy", 0, Outcome.COMMITTED, 1.0, [], "group", read))
    history.positions["group", PLACE] = 2
    assert check(history) == []
    history.positions["group", PLACE] = 0
    assert kinds(history) == {Kind.TORN}
