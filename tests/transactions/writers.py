"""Writers: workers whose transactions only write."""

from __future__ import annotations

import random
from collections.abc import Sequence

from confluent_kafka import Producer

from tests.scenarios.ledger import TopicPartition
from tests.transactions.history import Sent
from tests.transactions.worker import PATIENCE_S, TransactionalProducer, Tv1, Tv2


class Tv1Writer(Tv1):
    def __init__(
        self,
        name: str,
        bootstrap: str,
        dice: random.Random,
        places: Sequence[TopicPartition],
        keyed: set[TopicPartition],
    ) -> None:
        super().__init__(name, bootstrap, dice)
        self._places, self._keyed = places, keyed

    def _turn(self) -> None:
        transaction = self._next()

        def work(producer: Producer) -> None:
            for place, key in self._targets(self._places, self._keyed):
                self._send(producer, transaction.write(place, key))
                if self._dice.random() < 0.3:
                    producer.flush(PATIENCE_S)

        self._transact(transaction, work)


class Tv2Writer(Tv2):
    def __init__(
        self,
        name: str,
        bootstrap: str,
        dice: random.Random,
        places: Sequence[TopicPartition],
        keyed: set[TopicPartition],
    ) -> None:
        super().__init__(name, bootstrap, dice)
        self._places, self._keyed = places, keyed

    def _turn(self) -> None:
        transaction = self._next()

        def work(producer: TransactionalProducer) -> None:
            batches: list[list[Sent]] = []
            for place, key in self._targets(self._places, self._keyed):
                sent = transaction.write(place, key)
                if batches and batches[-1][0].place == place:
                    batches[-1].append(sent)
                else:
                    batches.append([sent])
            for batch in batches:
                self._write(producer, batch[0].place, batch)

        self._transact(transaction, work)
