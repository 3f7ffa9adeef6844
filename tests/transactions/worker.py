"""Workers: clients that do one transaction after another in threads of their own, and note it."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.scenarios.clients import IMPATIENT
from tests.scenarios.ledger import TopicPartition
from tests.transactions.history import Outcome, Sent, Transaction
from tests.transactions.raw_producer import RawProducer, Refused

# A client gives up its transaction after so long, and begins another.
PATIENCE_S = 60.0
# Transactions that nobody ends any more are aborted by the coordinator.
TIMEOUT_MS = 8_000
_PAUSE_S = 0.08
_KEYS = 12
_JOIN_WITHIN_S = 2 * PATIENCE_S


class TransactionalProducer(Protocol):
    """A producer that does as it is told; Refused or TimeoutError if it cannot."""

    def begin(self) -> None: ...

    def write(
        self, place: TopicPartition, values: Sequence[tuple[bytes | None, bytes]]
    ) -> list[int]: ...

    def stage(self, group: str, positions: Mapping[TopicPartition, int]) -> None: ...

    def end(self, *, commits: bool) -> None: ...

    def close(self) -> None: ...


class Worker:
    """Transactions of one producer until the `with` block ends.

    `problems` has what should never be; `counts` how transactions ended; `done` grows with each
    that was begun and left, however it ended.
    """

    def __init__(self, name: str, bootstrap: str, dice: random.Random) -> None:
        self.name = name
        self.transactions: list[Transaction] = []
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.ended = 0
        self._bootstrap = bootstrap
        self._dice = dice
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Begin no further transaction."""
        self._is_over.set()

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of what it does, for so long at most."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def __exit__(self, *problem: object) -> None:
        self.stop()
        if not self.ends_within(_JOIN_WITHIN_S):
            self.problems.append(f"{self.name} did not end within {_JOIN_WITHIN_S:g} s")

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._turn()
                self._is_over.wait(self._dice.uniform(0, _PAUSE_S))
        except Exception:
            self.problems.append(f"{self.name} failed: {traceback.format_exc()}")
        finally:
            self._close()

    def _turn(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        pass

    def _note(self, transaction: Transaction) -> None:
        self.counts[transaction.outcome.value] += 1
        if transaction.outcome is not Outcome.UNKNOWN:
            self.ended += 1

    def _next(self, group: str = "") -> Transaction:
        transaction = Transaction(self.name, len(self.transactions), group=group)
        self.transactions.append(transaction)
        return transaction

    def _targets(self, places: Sequence[TopicPartition], keyed: set[TopicPartition]) -> Any:
        """Some partitions, and keys for those that are compacted."""
        for _ in range(self._dice.randrange(1, 7)):
            place = self._dice.choice(places)
            key = b"key %d" % self._dice.randrange(_KEYS) if place in keyed else None
            yield place, key


class Tv1(Worker):
    """A worker with librdkafka's producer, which speaks the older dialect."""

    def __init__(self, name: str, bootstrap: str, dice: random.Random) -> None:
        super().__init__(name, bootstrap, dice)
        self._producer: Producer | None = None

    def _begun(self) -> Producer:
        """The producer, which is another after the last one gave up."""
        if self._producer is None:
            producer = Producer(
                {
                    **IMPATIENT,
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": TIMEOUT_MS,
                    "linger.ms": 1,
                    "request.timeout.ms": 3000,
                    "message.timeout.ms": TIMEOUT_MS,
                }
            )
            self._insist(producer.init_transactions)
            self._producer = producer
        return self._producer

    def _insist(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call what a client may have to be told again, which finds out what came of it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call(*arguments, PATIENCE_S)
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _send(self, producer: Producer, sent: Sent) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                # Without an offset if librdkafka lost the answer and took a later one for it.
                sent.is_acknowledged = True
                offset = message.offset()
                sent.offset = offset if offset is not None and offset >= 0 else None

        producer.produce(
            sent.place.topic, sent.value.content, sent.key, sent.place.partition,
            on_delivery=delivered,
        )  # fmt: skip

    def _transact(self, transaction: Transaction, work: Callable[[Producer], None]) -> None:
        """Do some work in a transaction, and end it."""
        commits = self._dice.random() < 0.75
        try:
            producer = self._begun()
            producer.begin_transaction()
            work(producer)
            if commits:
                transaction.outcome = Outcome.UNKNOWN
                transaction.commit_at = time.monotonic()
                self._insist(producer.commit_transaction)
                transaction.outcome = Outcome.COMMITTED
            else:
                self._insist(producer.abort_transaction)
        except KafkaException as problem:
            self._recover(problem.args[0])
        finally:
            self._note(transaction)

    def _recover(self, error: KafkaError) -> None:
        self.counts[f"tv1 {error.name()}"] += 1
        producer, self._producer = self._producer, None
        if producer is not None and error.txn_requires_abort():
            try:
                self._insist(producer.abort_transaction)
            except KafkaException as problem:
                self.counts[f"tv1 abort {problem.args[0].name()}"] += 1
            else:
                self._producer = producer


class Tv2(Worker):
    """A worker that speaks the newer dialect, and dies now and then in the middle of it all."""

    # Two producers with one name, where a zombie can be made.
    _can_haunt = True

    def __init__(self, name: str, bootstrap: str, dice: random.Random) -> None:
        super().__init__(name, bootstrap, dice)
        self._producer: TransactionalProducer | None = None

    def _new(self) -> TransactionalProducer:
        return RawProducer(self._bootstrap, self.name, timeout_ms=TIMEOUT_MS, patience_s=PATIENCE_S)

    def _begun(self) -> TransactionalProducer:
        if self._producer is None:
            producer = self._new()
            producer.begin()
            self._producer = producer
        return self._producer

    def _write(
        self, producer: TransactionalProducer, place: TopicPartition, some: list[Sent]
    ) -> None:
        """Write values to one partition, in one batch."""
        offsets = producer.write(place, [(sent.key, sent.value.content) for sent in some])
        for number, sent in enumerate(some):
            sent.is_acknowledged = True
            sent.offset = offsets[number] if offsets else None

    def _transact(
        self, transaction: Transaction, work: Callable[[TransactionalProducer], None]
    ) -> None:
        kind = self._dice.random()
        try:
            producer = self._begun()
            work(producer)
            if kind < 0.7:
                transaction.outcome = Outcome.UNKNOWN
                transaction.commit_at = time.monotonic()
                producer.end(commits=True)
                transaction.outcome = Outcome.COMMITTED
            elif kind < 0.9:
                producer.end(commits=False)
            elif kind < 0.97 or not self._can_haunt:
                # It dies, and another one with its name comes at once.
                self._die()
            else:
                # It dies, but for one last request.
                zombie, self._producer = producer, None
                self._begun()
                self._haunt(zombie, transaction)
        except (Refused, TimeoutError) as problem:
            what = str(problem).split(maxsplit=1)[0].rstrip(":")
            reason = problem.reason if isinstance(problem, Refused) else "TIMEOUT"
            self.counts[f"tv2 {what} {reason}"] += 1
            self._die()
        finally:
            self._note(transaction)

    def _haunt(self, zombie: TransactionalProducer, transaction: Transaction) -> None:
        try:
            zombie.end(commits=True)
        except Refused as problem:
            if not problem.is_fenced:
                self.problems.append(f"{self.name}: a zombie was told {problem}")
            self.counts["zombies fenced"] += 1
        else:
            self.problems.append(f"{transaction}: a zombie committed it")
        finally:
            zombie.close()

    def _die(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _close(self) -> None:
        self._die()
