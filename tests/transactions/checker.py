"""Checker: finds in a history what transactions must never show.

The anomalies are those that Jepsen looks for in logs with transactions:

    kind           a reader of committed records or the log shows ...
    ABORTED_READ   a value of a transaction that was aborted
    INCONSISTENT   two values at one offset
    LOST_WRITE     no value that was committed, though later ones are seen
    DUPLICATE      a value twice
    TORN           a part of a transaction: some of its values, or its values without its offsets
    CIRCULAR       a transaction that read from another one, which read from the first
    DISORDER       values in another order than they lie in or were sent in, or with a gap

and two that come with them:

    EARLY_READ     a value before its producer asked for the commit
    STRANGE        a value that nobody sent

Writes of transactions are not isolated from each other, in Kafka neither: two transactions may
write to two partitions in opposite orders. So CIRCULAR knows edges from a write to its reader only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from tests.scenarios.ledger import TopicPartition
from tests.transactions.history import History, Outcome, Reading, Seen, Sent, Transaction, Value


class Kind(Enum):
    ABORTED_READ = "aborted read"
    INCONSISTENT = "inconsistent offset"
    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    TORN = "torn transaction"
    CIRCULAR = "circular information flow"
    DISORDER = "disorder"
    EARLY_READ = "early read"
    STRANGE = "strange value"


class Anomaly(NamedTuple):
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


def check(history: History) -> list[Anomaly]:
    """Return everything that is wrong with a history."""
    return list(Checker(history).anomalies())


class Checker:
    """What can be concluded from one history, computed once for all checks."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._writer: dict[Value, Transaction] = {}
        self._sent: dict[Value, Sent] = {}
        # Every value that was found at an offset, by an acknowledgement or by a reader.
        self._at: defaultdict[tuple[TopicPartition, int], set[Value]] = defaultdict(set)
        self._offsets: defaultdict[tuple[TopicPartition, Value], set[int]] = defaultdict(set)
        self._visible: set[Value] = set()
        self._highest: dict[TopicPartition, int] = {}
        for transaction in history.transactions:
            for sent in transaction.sent:
                self._writer[sent.value] = transaction
                self._sent[sent.value] = sent
                if sent.offset is not None:
                    self._learn(sent.place, sent.offset, sent.value)
            for seen in transaction.read:
                self._see(seen)
        for reading in history.readings:
            for seen in reading.seen:
                if reading.is_committed:
                    self._see(seen)
                else:
                    self._learn(*seen[:3])
        # Committed, as far as anybody can tell.
        self._effective = [each for each in history.transactions if self._is_effective(each)]
        self._effective_ids = {(each.producer, each.number) for each in self._effective}
        self._newest = self._newest_by_key()
        self._required_offsets: dict[tuple[TopicPartition, bool], list[int]] = {}

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._strange()
        yield from self._aborted_and_early_reads()
        yield from self._inconsistent_and_duplicates()
        yield from self._lost_and_torn()
        yield from self._torn_offsets()
        yield from self._circular()
        yield from self._disorder_of_reads()
        yield from self._disorder_of_sends()

    # What is known

    def _learn(self, place: TopicPartition, offset: int, value: Value) -> None:
        self._at[place, offset].add(value)
        self._offsets[place, value].add(offset)

    def _see(self, seen: Seen) -> None:
        self._learn(*seen[:3])
        self._visible.add(seen.value)
        if seen.offset > self._highest.get(seen.place, -1):
            self._highest[seen.place] = seen.offset

    def _offset_of(self, sent: Sent) -> int | None:
        return min(self._offsets.get((sent.place, sent.value), ()), default=None)

    def _is_effective(self, transaction: Transaction) -> bool:
        return transaction.outcome is Outcome.COMMITTED or (
            transaction.outcome is Outcome.UNKNOWN
            and any(sent.value in self._visible for sent in transaction.sent)
        )

    def _newest_by_key(self) -> dict[tuple[TopicPartition, bytes | None], int]:
        """Return where the newest value of each key lies, of which compaction must leave one."""
        newest: dict[tuple[TopicPartition, bytes | None], int] = {}
        for transaction in self._effective:
            for sent in transaction.sent:
                offset = self._offset_of(sent)
                if offset is not None:
                    at = (sent.place, sent.key)
                    newest[at] = max(offset, newest.get(at, -1))
        return newest

    def _may_be_gone(self, sent: Sent) -> bool:
        """Return whether retention or compaction may have removed a value."""
        place, offset = sent.place, self._offset_of(sent)
        if offset is None:
            # Never seen: in a compacted partition it may have been replaced at once.
            return place in self._history.compacted or self._history.starts.get(place, 0) > 0
        if offset < self._history.starts.get(place, 0):
            return True
        return place in self._history.compacted and offset < self._newest.get((place, sent.key), -1)

    # Each of the anomalies

    def _committed_reads(self) -> Iterator[tuple[str, Seen]]:
        for reading in self._history.readings:
            if reading.is_committed:
                for seen in reading.seen:
                    yield reading.name, seen
        for transaction in self._history.transactions:
            for seen in transaction.read:
                yield str(transaction), seen

    def _strange(self) -> Iterator[Anomaly]:
        for (place, value), offsets in self._offsets.items():
            sent = self._sent.get(value)
            if sent is None or sent.place != place:
                text = f"{value} is in {place} at {_some(offsets)}, where nobody sent it"
                yield Anomaly(Kind.STRANGE, text)

    def _aborted_and_early_reads(self) -> Iterator[Anomaly]:
        for reader, seen in self._committed_reads():
            transaction = self._writer.get(seen.value)
            if transaction is None:
                continue
            text = f"{reader} saw {seen.value} in {seen.place} at {seen.offset}"
            if transaction.outcome is Outcome.ABORTED:
                yield Anomaly(Kind.ABORTED_READ, f"{text}, which was aborted")
            elif seen.at and seen.at < transaction.commit_at:
                early_s = transaction.commit_at - seen.at
                yield Anomaly(Kind.EARLY_READ, f"{text}, {early_s:.3f} s before its commit")

    def _inconsistent_and_duplicates(self) -> Iterator[Anomaly]:
        for (place, offset), values in self._at.items():
            if len(values) > 1:
                text = f"{place} has {_some(values)} at offset {offset}"
                yield Anomaly(Kind.INCONSISTENT, text)
        for (place, value), offsets in self._offsets.items():
            if len(offsets) > 1:
                text = f"{place} has {value} at the offsets {_some(offsets)}"
                yield Anomaly(Kind.DUPLICATE, text)

    def _is_missing(self, sent: Sent) -> bool:
        """Return whether readers must have seen a value, had it been committed, and did not."""
        if sent.value in self._visible or self._may_be_gone(sent):
            return False
        offset = self._offset_of(sent)
        if offset is None:
            return self._history.is_whole
        return self._history.is_whole or offset < self._highest.get(sent.place, -1)

    def _lost_and_torn(self) -> Iterator[Anomaly]:
        for transaction in self._effective:
            is_told = transaction.outcome is Outcome.COMMITTED
            missing = [
                sent
                for sent in transaction.sent
                if (is_told or sent.is_acknowledged) and self._is_missing(sent)
            ]
            if is_told:
                for sent in missing:
                    yield Anomaly(Kind.LOST_WRITE, f"nobody saw {sent.value} in {sent.place}")
            visible = [sent for sent in transaction.sent if sent.value in self._visible]
            if missing and visible:
                text = (
                    f"of {transaction}, which is {transaction.outcome.value}, "
                    f"{_some(each.value for each in visible)} is visible, "
                    f"{_some(each.value for each in missing)} is not"
                )
                yield Anomaly(Kind.TORN, text)

    def _torn_offsets(self) -> Iterator[Anomaly]:
        """A group reads everything once, if its offsets are committed with what came of it."""
        taken: defaultdict[tuple[str, TopicPartition], dict[int, Transaction]] = defaultdict(dict)
        for transaction in self._effective:
            for seen in transaction.read:
                by_offset = taken[transaction.group, seen.place]
                first = by_offset.setdefault(seen.offset, transaction)
                if first is not transaction:
                    text = (
                        f"{seen.place} offset {seen.offset} was read by {first} and {transaction}"
                    )
                    yield Anomaly(Kind.TORN, text)
        for (group, place), by_offset in taken.items():
            end = max(by_offset)
            position = self._history.positions.get((group, place), end + 1)
            if position != end + 1:
                text = f"{group} stands at {position} of {place}, having read {end} last"
                yield Anomaly(Kind.TORN, text)
            for offset in self._required(place, is_committed=True):
                if offset < end and offset not in by_offset:
                    text = f"no transaction of {group} read {place} offset {offset}"
                    yield Anomaly(Kind.TORN, text)

    def _circular(self) -> Iterator[Anomaly]:
        graph: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        for transaction in self._effective:
            for seen in transaction.read:
                graph[transaction.producer, transaction.number].add(seen.value[:2])
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as found:
            text = " <- ".join(f"transaction {number} of {name}" for name, number in found.args[1])
            yield Anomaly(Kind.CIRCULAR, text)

    def _required(self, place: TopicPartition, *, is_committed: bool) -> list[int]:
        """Return the offsets that a reader of a partition may not jump over."""
        key = (place, is_committed)
        if key not in self._required_offsets:
            self._required_offsets[key] = sorted(
                offset
                for (there, value), offsets in self._offsets.items()
                if there == place
                and (sent := self._sent.get(value)) is not None
                and not self._may_be_gone(sent)
                and self._is_for_all(sent, is_committed=is_committed)
                for offset in offsets
            )
        return self._required_offsets[key]

    def _is_for_all(self, sent: Sent, *, is_committed: bool) -> bool:
        if sent.value[:2] in self._effective_ids:
            return True
        # Who reads everything sees what was aborted, unless the cleaner came first.
        return not is_committed and sent.place not in self._history.compacted

    def _disorder_of_reads(self) -> Iterator[Anomaly]:
        for reading in self._history.readings:
            yield from self._disorder(reading)
        for transaction in self._history.transactions:
            within = Reading(str(transaction), True, transaction.read)
            for seen in transaction.read:
                within.begins.setdefault(seen.place, seen.offset)
            yield from self._disorder(within)

    def _disorder(self, reading: Reading) -> Iterator[Anomaly]:
        last = {place: begins - 1 for place, begins in reading.begins.items()}
        for seen in reading.seen:
            place, offset = seen.place, seen.offset
            before = last.get(place, -1)
            if offset <= before:
                text = f"{reading.name} saw {place} offset {offset} after {before}"
                yield Anomaly(Kind.DISORDER, text)
            required = self._required(place, is_committed=reading.is_committed)
            skipped = required[bisect_right(required, before) : bisect_left(required, offset)]
            if skipped:
                text = f"{reading.name} skipped {_some(skipped)} of {place}, from {before}"
                yield Anomaly(Kind.DISORDER, text)
            last[place] = offset

    def _disorder_of_sends(self) -> Iterator[Anomaly]:
        offsets: defaultdict[tuple[str, TopicPartition], list[tuple[int, Value]]]
        offsets = defaultdict(list)
        for transaction in self._history.transactions:
            for sent in transaction.sent:
                offset = self._offset_of(sent)
                if offset is not None:
                    offsets[transaction.producer, sent.place].append((offset, sent.value))
        for (_, place), found in offsets.items():
            for (earlier, first), (later, second) in pairwise(found):
                if later < earlier:
                    text = f"{place}: {second} is at {later}, {first} before it at {earlier}"
                    yield Anomaly(Kind.DISORDER, text)


def _some(items: Iterable[object], most: int = 4) -> str:
    shown = [str(each) for each in items]
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest
