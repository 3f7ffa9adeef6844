"""Model: a cluster that does transactions right, in a few lines, and the histories it makes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.scenarios.ledger import TopicPartition
from tests.transactions.history import History, Outcome, Reading, Seen, Transaction, Value

PLACES = [TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("keyed", 0)]
KEYED = PLACES[2]
_KEYS = [b"a", b"b", b"c"]


@dataclass(slots=True)
class _Entry:
    """A value or, without one, a marker; `is_kept` until compaction removes it."""

    transaction: Transaction
    value: Value | None
    key: bytes | None
    is_kept: bool = True


@dataclass(slots=True)
class Model:
    """Logs, transactions and readers, which take turns as the dice have it."""

    dice: random.Random
    history: History = field(default_factory=lambda: History(compacted={KEYED}, is_whole=True))
    logs: dict[TopicPartition, list[_Entry]] = field(
        default_factory=lambda: {place: [] for place in PLACES}
    )
    open: dict[str, Transaction] = field(default_factory=dict)
    ended: dict[tuple[str, int], bool] = field(default_factory=dict)
    group_at: dict[TopicPartition, int] = field(default_factory=dict)
    now: float = 1.0

    def play(self, steps: int) -> History:
        readers = [Reading("committed", True), Reading("everything", False)]
        self.history.readings += readers
        at: dict[str, dict[TopicPartition, int]] = {each.name: {} for each in readers}
        for _ in range(steps):
            self.now += 1.0
            producer = self.dice.choice(["a", "b", "c"])
            kind = self.dice.random()
            if kind < 0.55:
                self._write(producer)
            elif kind < 0.75:
                self._end(producer)
            elif kind < 0.8:
                self._compact()
            else:
                reader = self.dice.choice(readers)
                self._poll(reader, at[reader.name], most=3)
        for producer in list(self.open):
            self._end(producer)
        self.now += 1.0
        for reader in readers:
            self._poll(reader, at[reader.name], most=1 << 30)
        last = Reading("log", True)
        self.history.readings.append(last)
        self._poll(last, {}, most=1 << 30)
        return self.history

    def _begin(self, producer: str) -> Transaction:
        number = sum(each.producer == producer for each in self.history.transactions)
        transaction = self.open[producer] = Transaction(producer, number, group="group")
        self.history.transactions.append(transaction)
        if not any(each.read for each in self.open.values()):
            self._consume(transaction)
        return transaction

    def _consume(self, transaction: Transaction) -> None:
        """Read on where the group's last committed transaction stopped; one does at a time."""
        place = self.dice.choice(PLACES[:2])
        reading = Reading("", True)
        self._poll(reading, dict(self.group_at), most=3, places=[place])
        transaction.read = reading.seen

    def _write(self, producer: str) -> None:
        transaction = self.open.get(producer) or self._begin(producer)
        place = self.dice.choice(PLACES)
        key = self.dice.choice(_KEYS) if place == KEYED else None
        sent = transaction.write(place, key)
        log = self.logs[place]
        if self.dice.random() < 0.8:
            # Else the answer is lost.
            sent.offset, sent.is_acknowledged = len(log), True
        log.append(_Entry(transaction, sent.value, key))

    def _end(self, producer: str) -> None:
        transaction = self.open.pop(producer, None)
        if transaction is None:
            return
        commits = self.dice.random() < 0.7
        self.ended[producer, transaction.number] = commits
        for place in {each.place for each in transaction.sent}:
            self.logs[place].append(_Entry(transaction, None, None))
        if commits:
            transaction.commit_at = self.now
            for seen in transaction.read:
                self.group_at[seen.place] = seen.offset + 1
        is_told = self.dice.random() < 0.8
        if commits or not is_told:
            transaction.outcome = Outcome.COMMITTED if is_told else Outcome.UNKNOWN

    def _is_committed(self, entry: _Entry) -> bool:
        transaction = entry.transaction
        return self.ended.get((transaction.producer, transaction.number), False)

    def _last_stable(self, place: TopicPartition) -> int:
        still_open = list(self.open.values())
        for offset, entry in enumerate(self.logs[place]):
            if any(entry.transaction is each for each in still_open):
                return offset
        return len(self.logs[place])

    def _compact(self) -> None:
        newest: dict[bytes | None, _Entry] = {}
        for entry in self.logs[KEYED][: self._last_stable(KEYED)]:
            if entry.value is None:
                continue
            entry.is_kept = self._is_committed(entry)
            if entry.is_kept:
                before = newest.get(entry.key)
                if before is not None:
                    before.is_kept = False
                newest[entry.key] = entry

    def _poll(
        self,
        reading: Reading,
        at: dict[TopicPartition, int],
        most: int,
        places: list[TopicPartition] = PLACES,
    ) -> None:
        for place in places:
            log, taken = self.logs[place], 0
            end = self._last_stable(place) if reading.is_committed else len(log)
            for offset in range(at.get(place, 0), end):
                entry = log[offset]
                at[place] = offset + 1
                is_shown = not reading.is_committed or self._is_committed(entry)
                if entry.value is not None and entry.is_kept and is_shown:
                    reading.seen.append(Seen(place, offset, entry.value, self.now + 0.5))
                    taken += 1
                    if taken == most:
                        break
