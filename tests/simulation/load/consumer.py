"""Consumers that read one partition from its beginning on, and remember all that they saw."""

from __future__ import annotations

import asyncio

from moldau.peer.errors import PeerError
from moldau.records.batch import batches
from moldau.records.record import records_of
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from tests.simulation.checks.history import History, Violation
from tests.simulation.core.world import World
from tests.simulation.load.talker import BACKOFF_S, TIMEOUT_S, Failed, Leader, Talker

# How often it looks for the leader without need, and how often a leader that it has just found is
# asked where the log ends, before it is asked for records.
_LOOKS_SHARE = 0.1
_ASKS_SHARE = 0.5
_LATEST = -1


class Consumer(Talker):
    """Reads by topic id, so that a topic that was made anew is another."""

    def __init__(
        self, world: World, history: History, name: str, topic: str, partition: int, every_s: float
    ) -> None:
        super().__init__(world, name)
        self._history = history
        self._topic = topic
        self._partition = partition
        self._every_s = every_s
        self.position = 0
        self.end = -1
        self.leader: Leader | None = None

    async def run(self) -> None:
        while not self.is_stopping:
            await self.read_some()
            await self.pause(self._every_s)

    async def read_some(self) -> None:
        """Fetch once; find the leader anew after a problem."""
        leader = self.leader
        is_new = leader is None or self.dice.random() < _LOOKS_SHARE
        if leader is None or is_new:
            leader = self.follow(await self.find_leader(self._topic, self._partition))
        try:
            if is_new and self.dice.random() < _ASKS_SHARE:
                await self.ask_end(leader)
            found = await self.fetch(leader)
        except Failed:
            self.leader = None
            await self.pause(BACKOFF_S)
            return
        if found.error:
            self.leader = None
            await self.pause(BACKOFF_S)
        else:
            self._take(leader, found)

    def follow(self, leader: Leader) -> Leader:
        """Read from a broker from now on."""
        if self.leader_id is not None and self.leader_id != leader.topic_id:
            self.position, self.end, self._epoch = 0, -1, -1
        # As clients do: who has heard of a later leader believes no earlier one (KIP-320).
        self._epoch = max(self._epoch, leader.epoch)
        self.leader = leader._replace(epoch=self._epoch)
        self.leader_id = leader.topic_id
        return self.leader

    leader_id: object = None
    _epoch = -1
    max_bytes = 1 << 20

    async def fetch(self, leader: Leader) -> FetchedPartition:
        wanted = FetchPartition(
            self._partition, leader.epoch, self.position, max_bytes=self.max_bytes
        )
        request = self._request(leader, wanted)
        connection = await self.to(leader.broker)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await connection.fetch(request)
        except TimeoutError:
            connection.close()
            raise Failed("timed out") from None
        except PeerError as problem:
            raise Failed(str(problem)) from None
        if answer.error or not answer.topics:
            raise Failed(f"error {answer.error}")
        found: FetchedPartition = answer.topics[0][1][0]
        if found.error:
            code = Error(found.error)
            self._history.count(f"{code.name} for a consumer")
            if code is Error.OFFSET_OUT_OF_RANGE:
                raise Violation(
                    f"{self.name} has read up to {self.position} of {self._topic}-"
                    f"{self._partition}, and broker {leader.broker} says that this is out of range"
                )
        return found

    async def ask_end(self, leader: Leader) -> None:
        """Whoever leads says that everything is there that was read."""
        position = self.position
        wanted = {
            "partition_index": self._partition,
            "current_leader_epoch": leader.epoch,
            "timestamp": _LATEST,
        }
        answer = await self.ask(
            leader.broker,
            Api.LIST_OFFSETS,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": self._topic, "partitions": [wanted]}],
            timeout=5000,
        )
        (found,) = answer.topics[0].partitions
        if found.error_code == Error.NONE and found.offset < position:
            raise Violation(
                f"{self.name} has read up to {position} of {self._topic}-{self._partition}, and "
                f"broker {leader.broker} says in epoch {leader.epoch} that it ends at "
                f"{found.offset}"
            )
        self._history.count("end asked for")

    def _request(self, leader: Leader, wanted: FetchPartition) -> FetchRequest:
        return FetchRequest([(leader.topic_id, [wanted])], max_wait_ms=500)

    def _take(self, leader: Leader, found: FetchedPartition) -> None:
        self.end = found.high_watermark
        if found.last_stable > found.high_watermark:
            raise Violation(
                f"broker {leader.broker} says that {found.last_stable} is stable, and only "
                f"{found.high_watermark} committed"
            )
        data = bytes(found.records) if found.records is not None else b""
        for position, header in batches(data):
            for record in records_of(data, position):
                if record.offset < self.position:
                    continue
                if record.offset >= found.high_watermark:
                    raise Violation(
                        f"{self.name} read {record.offset} of {self._topic}-{self._partition}, "
                        f"beyond the high watermark {found.high_watermark}"
                    )
                if record.offset > self.position:
                    raise Violation(
                        f"{self.name} read {record.offset} of {self._topic}-{self._partition} "
                        f"after {self.position - 1}"
                    )
                if not header.is_control:
                    place = (leader.topic_id, self._partition)
                    self._history.read(self.name, place, record.offset, record.value or b"")
                self.position = record.offset + 1
            if not header.count and header.base_offset == self.position:
                # A fence has an offset and no record.
                self.position += header.last_offset_delta + 1


class LentReader(Consumer):
    """Reads for another client, over that one's own connections."""

    def __init__(
        self, owner: Talker, history: History, topic: str, partition: int, position: int
    ) -> None:
        self.world, self.name, self.loop = owner.world, owner.name, owner.loop
        self.dice, self.process = owner.dice, owner.process
        self._connections = owner._connections
        self.is_stopping = False
        self._history = history
        self._topic = topic
        self._partition = partition
        self._every_s = 1.0
        self.position = position
        self.end = -1
        self.leader = None
