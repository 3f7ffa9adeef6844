"""Readers that are shown only what transactions have committed."""

from __future__ import annotations

from moldau.records.batch import batches
from moldau.records.record import end_marker_of, records_of
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from tests.simulation.checks.history import History, Violation
from tests.simulation.checks.transactions import Ledger
from tests.simulation.core.world import World
from tests.simulation.load.consumer import Consumer
from tests.simulation.load.talker import Leader

_READ_COMMITTED = 1


class CommittedReader(Consumer):
    """Reads one partition as a client does that wants committed records only: it drops what the
    broker names as aborted.
    """

    def __init__(
        self,
        world: World,
        history: History,
        ledger: Ledger,
        name: str,
        topic: str,
        partition: int,
        every_s: float,
    ) -> None:
        super().__init__(world, history, name, topic, partition, every_s)
        self._ledger = ledger
        self.seen: dict[int, bytes] = {}

    def _request(self, leader: Leader, wanted: FetchPartition) -> FetchRequest:
        return FetchRequest(
            [(leader.topic_id, [wanted])], max_wait_ms=500, isolation_level=_READ_COMMITTED
        )

    def _take(self, leader: Leader, found: FetchedPartition) -> None:
        self.end = found.high_watermark
        data = bytes(found.records) if found.records is not None else b""
        place = (leader.topic_id, self._partition)
        aborting: set[int] = set()
        pending = sorted(found.aborted or (), key=lambda each: each[1])
        for position, header in batches(data):
            while pending and pending[0][1] <= header.last_offset:
                aborting.add(pending.pop(0)[0])
            records = list(records_of(data, position))
            if header.last_offset >= found.last_stable:
                raise Violation(
                    f"{self.name} was shown {header.last_offset} of {self._topic}-"
                    f"{self._partition}, and only {found.last_stable} is stable"
                )
            if header.is_control:
                if records and end_marker_of(records[0]) is not None:
                    aborting.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in aborting:
                for record in records:
                    if record.offset >= self.position:
                        value = record.value or b""
                        self._history.count("read committed")
                        self._ledger.read(self.name, place, record.offset, value)
                        self.seen[record.offset] = value
            self.position = max(self.position, header.last_offset + 1)
        self._ledger.readers[self.name] = (place, 0, self.position, self.seen)
