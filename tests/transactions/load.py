"""Load: workers and readers on some topics, and the history of what they did and saw."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from moldau.peer.cluster import EARLIEST, LATEST, Cluster
from moldau.peer.errors import PeerError
from tests.scenarios.ledger import TopicPartition, Wrong
from tests.transactions.checker import Anomaly
from tests.transactions.copiers import Tv1Copier, Tv2Copier, committed_by
from tests.transactions.history import History
from tests.transactions.readers import Reader
from tests.transactions.worker import Worker

WITHIN_S = 120.0
_WAKE_AFTER_S = 20.0
_MOST_SHOWN = 12


class Load:
    """Works from the beginning of the block to its end; `groups` has what each group copies."""

    def __init__(
        self,
        bootstrap: str,
        places: Sequence[TopicPartition],
        keyed: Iterable[TopicPartition],
        workers: Sequence[Worker],
        groups: Mapping[str, Sequence[TopicPartition]],
    ) -> None:
        self.places = places
        self.workers = workers
        self._bootstrap = bootstrap
        self._keyed = set(keyed)
        self._groups = groups
        self._stack = ExitStack()
        self._readers = [
            Reader(bootstrap, places, "a committed reader", is_committed=True),
            Reader(bootstrap, places, "a reader of all", is_committed=False),
        ]

    def __enter__(self) -> Self:
        for reader in self._readers:
            self._stack.enter_context(reader)
        for worker in self.workers:
            self._stack.enter_context(worker)
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    @property
    def counts(self) -> Counter[str]:
        """How many transactions ended how, and what they did."""
        found: Counter[str] = Counter()
        for worker in self.workers:
            found += worker.counts
            for transaction in worker.transactions:
                found["values"] += len(transaction.sent)
                found["inputs"] += len(transaction.read)
        return found

    def go_on(self, transactions: int = 2) -> None:
        """Return when every writer has ended so many more; copiers may have nothing to copy."""
        writers = [each for each in self.workers if not isinstance(each, (Tv1Copier, Tv2Copier))]
        before = {worker: worker.ended for worker in writers}

        def behind() -> list[str]:
            wanted = transactions
            return [each.name for each in writers if each.ended < before[each] + wanted]

        self._wait(lambda: not behind(), lambda: f"transactions of {behind()}")

    def finish(self, wake: Callable[[], None] = lambda: None) -> History:
        """Let the workers end, and return the history once nothing is open and all is read.

        A librdkafka that lost a coordinator may ask for another only when any of its connections
        breaks or is made, and sends offsets to a transaction until then (its issues 5456 and 5511):
        `wake` has that happen to a worker that does not end.
        """
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            if not worker.ends_within(_WAKE_AFTER_S):
                wake()
            worker.__exit__()
        ends = self._settled()
        last = Reader(self._bootstrap, self.places, "a last reader", is_committed=True)
        with last:
            for reader in (*self._readers, last):
                reader.wait_until_at(ends)
        self._readers.append(last)
        self._raise_problems()
        history = History(compacted=self._keyed, is_whole=True, starts=self.starts())
        for worker in self.workers:
            history.transactions += worker.transactions
        history.readings += [reader.reading for reader in self._readers]
        for group, places in self._groups.items():
            for place, offset in committed_by(self._bootstrap, group, places).items():
                history.positions[group, place] = offset
        return history

    def starts(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that retention has left."""
        return self._offsets(EARLIEST)

    def _settled(self) -> dict[TopicPartition, int]:
        """Return the ends of the partitions once no transaction is open in any of them."""
        found: dict[str, dict[TopicPartition, int]] = {}

        def is_settled() -> bool:
            found["stable"] = self._offsets(LATEST, read_committed=True)
            found["all"] = self._offsets(LATEST)
            return found["stable"] == found["all"]

        self._wait(is_settled, lambda: f"all transactions to end: {found}")
        return found["all"]

    def _offsets(self, when: int, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        addresses = [each.rpartition(":") for each in self._bootstrap.split(",")]
        wanted = {(place.topic, place.partition): when for place in self.places}
        with Cluster([(host, int(port)) for host, _, port in addresses]) as cluster:
            listed = cluster.list_offsets(wanted, read_committed=read_committed)
        return {TopicPartition(*place): each.offset for place, each in listed.items()}

    def _raise_problems(self) -> None:
        problems = [each for worker in self.workers for each in worker.problems]
        problems += [each for reader in self._readers for each in reader.problems]
        if problems:
            raise Wrong(problems[0])

    def _wait(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while True:
            self._raise_problems()
            problem = ""
            try:
                if is_so():
                    return
            except PeerError as lost:
                problem = str(lost)
            if time.monotonic() > deadline:
                raise Wrong(f"after {WITHIN_S:g} s still waiting for {what()} {problem}")
            time.sleep(0.05)


def expect_none(anomalies: Sequence[Anomaly]) -> None:
    if anomalies:
        shown = "\n".join(map(str, anomalies[:_MOST_SHOWN]))
        raise Wrong(f"{len(anomalies)} anomalies, the first of them:\n{shown}")
